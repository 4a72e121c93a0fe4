"""Many variants of an extension, built ahead of time into a package that only has to be imported.

A space (space.py, constraint.py) and a template (template.py) make a plan: a job for each variant
(plan.py). A work unit (work.py) builds one job through the daemon of its machine, and notes the
result in a store by content (results.py): the draft of the package, or a place that several
machines share. What is noted there and still valid is not built again, so that the same store
makes a killed run resume, and takes results from one machine to another. run.py keeps the work
units going on any executor; package.py and wheel.py write what they made. A spec file (spec.py) is
the same as a call of ``prebuild`` (api.py).
"""
