"""Hardware sources behind ports.HardwareProbe: NVML, amdsmi, command-line tools, sysfs."""
