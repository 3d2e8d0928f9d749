// A shared library that is not Go's. Opening it as a plugin ends the process.
int CreateDevicePlugin(void) { return 0; }
