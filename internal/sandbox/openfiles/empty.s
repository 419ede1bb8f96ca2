// The compiler accepts functions without a body, such as rawSyscall6, only beside a file in assembly.
