"""The exact level: nvcc's own steps, the devices' half warm where that is possible."""
