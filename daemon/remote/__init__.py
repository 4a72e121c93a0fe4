"""The remote store: results of other machines, in a folder or on a server (setting ``remote``).

    v1/results/<aa>/<key>       offers: results with their signatures (offers.py)
    v1/headers/<aa>/<sha256>    header sets by content, compressed (header_contents.py)
    v1/files/<aa>/<sha256>      artifacts, compressed

``<key>`` is that of the request with its sources' contents (portable.py); everything else is named
by the SHA-256 of its content, and checked by it. A remote store may lose, damage or withhold
anything: then the result is built.
"""
