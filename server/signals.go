package server

import (
	"syscall"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/process"
)

// toSignal translates a signal: the contract's numbers are Linux's.
func toSignal(s execwirev1.Signal) syscall.Signal { return syscall.Signal(s) }

func toTarget(t execwirev1.SignalTarget) process.Target {
	switch t {
	case execwirev1.SignalTarget_SIGNAL_TARGET_PROCESS:
		return process.TargetProcess
	case execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND:
		return process.TargetForeground
	default:
		return process.TargetGroup
	}
}

func toWindowSize(m *execwirev1.TerminalSize) process.WindowSize {
	return process.WindowSize{Rows: uint16(m.GetRows()), Cols: uint16(m.GetColumns())}
}

func toMethod(m process.Method) execwirev1.KillMethod {
	switch m {
	case process.MethodProcessGroup:
		return execwirev1.KillMethod_KILL_METHOD_PROCESS_GROUP
	case process.MethodDescendants:
		return execwirev1.KillMethod_KILL_METHOD_DESCENDANTS
	case process.MethodCgroup:
		return execwirev1.KillMethod_KILL_METHOD_CGROUP
	default:
		return execwirev1.KillMethod_KILL_METHOD_UNSPECIFIED
	}
}
