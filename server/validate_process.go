package server

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Limits of fields that no setting changes.
const (
	// maxStartIDBytes bounds start_id.
	maxStartIDBytes = 128
	// maxUserBytes bounds the user of a process, with a group.
	maxUserBytes = 256
	// MaxLabels is how many labels a process may have.
	MaxLabels = 16
	// MaxLabelNameBytes and MaxLabelValueBytes are the longest name and value of
	// a label.
	MaxLabelNameBytes, MaxLabelValueBytes = 64, 256
	// MinRetainedOutputBytes is the smallest retained_output_bytes of a process.
	MinRetainedOutputBytes = 64 << 10
	// maxSignal is the highest signal number of Linux.
	maxSignal = 64
	// maxTerminalSide is the largest number of rows or columns that the
	// operating system can express.
	maxTerminalSide = 1<<16 - 1
	// maxPort is the highest TCP port.
	maxPort = 1<<16 - 1
)

func validateStart(prefix string, m *execwirev1.StartProcessRequest) error {
	if terminal := m.GetIo().GetTerminal(); terminal.GetSize() != nil {
		if err := validateSize(prefix+"io.terminal.size", terminal.GetSize()); err != nil {
			return err
		}
	}
	return cmp.Or(
		validateLength(prefix+"session_id", m.GetSessionId(), maxIDBytes),
		validateLength(prefix+"process_id", m.GetProcessId(), MaxProcessIDBytes),
		validateLength(prefix+"start_id", m.GetStartId(), maxStartIDBytes),
		validateLength(prefix+"user", m.GetUser(), maxUserBytes),
		validateCommand(prefix+"command", m.GetCommand()),
		validateEnum(prefix+"io.pipes.stdin", m.GetIo().GetPipes().GetStdin()),
		validateLabels(prefix+"labels", m.GetLabels()),
		validateKeep(prefix+"keep", m.GetKeep()),
		validateLimits(prefix+"limits", m.GetLimits()))
}

// validateKeep accepts an absent duration, and one above 0.
func validateKeep(field string, d *durationpb.Duration) error {
	if d != nil && d.AsDuration() == 0 {
		return invalidField(field, "is 0: leave it out for the retention of the server")
	}
	return validateDuration(field, d)
}

// validateLabels checks the labels of a process.
func validateLabels(field string, labels map[string]string) error {
	if len(labels) > MaxLabels {
		return invalidField(field, fmt.Sprintf("has %d entries: use at most %d", len(labels), MaxLabels))
	}
	for name, value := range labels {
		if err := cmp.Or(validateName(field, name, MaxLabelNameBytes),
			validateLength(fmt.Sprintf("%s[%q]", field, name), value, MaxLabelValueBytes)); err != nil {
			return err
		}
	}
	return nil
}

func validateCommand(field string, m *execwirev1.ProcessCommand) error {
	switch command := m.GetCommand().(type) {
	case *execwirev1.ProcessCommand_Direct:
		return validateEnum(field+".direct.environment_policy.inherit", command.Direct.GetEnvironmentPolicy().GetInherit())
	case *execwirev1.ProcessCommand_Prepared:
		if command.Prepared.GetExecutable() == "" {
			return invalidField(field+".prepared.executable", "is empty: give an absolute path")
		}
		return nil
	}
	return invalidField(field, "is missing: give a direct or a prepared command")
}

// validateLimits checks what a process may be limited to, except for what
// process.Spec validates under the same name. The field is where the limits are in
// their message.
func validateLimits(field string, m *execwirev1.ProcessLimits) error {
	var seen []execwirev1.LimitedResource
	for i, limit := range m.GetResourceLimits() {
		at := fmt.Sprintf("%s.resource_limits[%d]", field, i)
		if err := validateResourceLimit(at, limit, seen); err != nil {
			return err
		}
		seen = append(seen, limit.GetResource())
	}
	if m != nil && m.RetainedOutputBytes != nil && m.GetRetainedOutputBytes() < MinRetainedOutputBytes {
		return invalidField(field+".retained_output_bytes",
			fmt.Sprintf("is %d: use at least %d, or leave it out", m.GetRetainedOutputBytes(), MinRetainedOutputBytes))
	}
	return cmp.Or(validateTimeout(field+".timeout", m.GetTimeout()), validateTimeout(field+".no_output_timeout", m.GetNoOutputTimeout()))
}

// validateTimeout accepts an absent duration, and one above 0.
func validateTimeout(field string, d *durationpb.Duration) error {
	if d != nil && d.AsDuration() == 0 {
		return invalidField(field, "is 0: leave it out for no timeout")
	}
	return validateDuration(field, d)
}

func validateResourceLimit(field string, m *execwirev1.ResourceLimit, seen []execwirev1.LimitedResource) error {
	resource := m.GetResource()
	switch {
	case resources[resource] == 0:
		return invalidField(field+".resource", fmt.Sprintf("cannot be %d: name what to limit", resource))
	case slices.Contains(seen, resource):
		return invalidField(field+".resource", fmt.Sprintf("is %v again: limit each resource at most once", resource))
	case m.Hard != nil && m.GetHard() < m.GetSoft():
		return invalidField(field+".hard", fmt.Sprintf("is %d: use at least soft, %d", m.GetHard(), m.GetSoft()))
	}
	return nil
}

// validateOwn validates the first message of an owner. Later messages of a stream are
// validated by the handler, because a mistake in them must not end the stream: see
// [validateRunInput].
func validateOwn(m ownRequest) error {
	start, resume := m.GetStart(), m.GetResume()
	switch {
	case start != nil && start.GetProcess() == nil:
		return invalidField("start.process", "is missing")
	case start != nil:
		return cmp.Or(validateDuration("start.grace", start.GetGrace()), validateStart("start.process.", start.GetProcess()))
	case resume != nil:
		return cmp.Or(validateDuration("resume.grace", resume.GetGrace()), validateReference("resume.", resume))
	}
	return nil
}

// validateWrite validates what only owners, and only others, may set.
func validateWrite(m *execwirev1.WriteStdinRequest) error {
	switch owned := m.GetOwnerId() != ""; {
	case owned && m.GetWriteId() != "":
		return invalidField("write_id", "is set beside owner_id: an owner repeats a write with its offset")
	case !owned && m.GetOffset() != 0:
		return invalidField("offset", "is set without owner_id: only an owner has an offset")
	case !owned && m.GetEndOfFile():
		return invalidField("end_of_file", "is set without owner_id: call CloseStdin")
	}
	return cmp.Or(validateLength("write_id", m.GetWriteId(), MaxWriteIDBytes), validateLength("owner_id", m.GetOwnerId(), maxIDBytes))
}

// validateRunInput validates later messages of a stream.
func validateRunInput(m *execwirev1.RunProcessRequest) error {
	switch message := m.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Resize:
		return validateSize("resize", message.Resize)
	case *execwirev1.RunProcessRequest_Signal:
		return validateSignal("signal.", message.Signal.GetSignal(), message.Signal.GetTarget())
	case *execwirev1.RunProcessRequest_Terminate:
		return validateTermination("terminate", message.Terminate)
	case nil:
		return invalidField("message", "is missing: set one of its members")
	}
	return nil
}

func validateSize(field string, m *execwirev1.TerminalSize) error {
	if m == nil {
		return invalidField(field, "is missing")
	}
	return cmp.Or(validatePositive(field+".rows", uint64(m.GetRows()), maxTerminalSide),
		validatePositive(field+".columns", uint64(m.GetColumns()), maxTerminalSide))
}

func validateSignal(prefix string, signal execwirev1.Signal, target execwirev1.SignalTarget) error {
	if signal <= 0 || signal > maxSignal {
		return invalidField(prefix+"signal", fmt.Sprintf("is %d: use 1 to %d", signal, maxSignal))
	}
	return validateEnum(prefix+"target", target)
}

func validateTermination(field string, m *execwirev1.Termination) error {
	return validateDuration(field+".graceful.timeout", m.GetGraceful().GetTimeout())
}

func validateCondition(m *execwirev1.WaitProcessRequest) error {
	switch condition := m.GetCondition().(type) {
	case *execwirev1.WaitProcessRequest_Pattern:
		return validateEnum("pattern.stream", condition.Pattern.GetStream())
	case *execwirev1.WaitProcessRequest_Port:
		return validatePositive("port.port", uint64(condition.Port.GetPort()), maxPort)
	case *execwirev1.WaitProcessRequest_Idle:
		silence := condition.Idle.GetSilence()
		if silence.AsDuration() == 0 {
			return invalidField("idle.silence", "is 0 or missing: set how long the process must have been silent")
		}
		return validateDuration("idle.silence", silence)
	case *execwirev1.WaitProcessRequest_Screen:
		idle := condition.Screen.GetIdle()
		if condition.Screen.GetRegularExpression() == "" && idle.AsDuration() == 0 {
			return invalidField("screen", "has no regular_expression and no idle: say for what to wait")
		}
		return validateDuration("screen.idle", idle)
	}
	return nil
}
