package server

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Bounds of fields that no configuration changes.
const (
	// MaxIDBytes is the longest id of a session.
	MaxIDBytes = 256
	// MaxProcessIDBytes is the longest id of a process, and the longest page
	// token.
	MaxProcessIDBytes = 1024
	// MaxWriteIDBytes is the longest id of a write.
	MaxWriteIDBytes = 128
	// maxStartIDBytes bounds start_id.
	maxStartIDBytes = 128
	// MaxLabels is how many labels a process may have.
	MaxLabels = 16
	// MaxLabelNameBytes and MaxLabelValueBytes are the longest name and value of
	// a label.
	MaxLabelNameBytes, MaxLabelValueBytes = 64, 256
	// maxSignal is the highest signal number of Linux.
	maxSignal = 64
	// maxTerminalSide is the largest number of rows or columns that the
	// operating system can express.
	maxTerminalSide = 1<<16 - 1
	// maxPort is the highest TCP port.
	maxPort = 1<<16 - 1
)

// processReference is what every request about one process has.
type processReference interface {
	GetSessionId() string
	GetProcessId() string
}

// validateFields checks what can be known from a message alone. What depends
// on the machine or on a process is checked where it is used.
func validateFields(m proto.Message) error {
	if err, ok := validateHandle(m); ok {
		return err
	}
	if err, ok := validateFiles(m); ok {
		return err
	}
	switch m := m.(type) {
	case *execwirev1.StartProcessRequest:
		return validateStart("", m)
	case *execwirev1.RunProcessRequest:
		return validateRun(m)
	case *execwirev1.ListProcessesRequest:
		if err := validateID("session_id", m.GetSessionId()); err != nil {
			return err
		}
		return validatePage(m)
	case *execwirev1.FetchRequest:
		return validateFetch(m)
	case *execwirev1.AttachSessionRequest:
		return validateAttach(m)
	case *execwirev1.ListSessionsRequest:
		return validatePage(m)
	case *execwirev1.CloseSessionRequest:
		return validateSession(m.GetSessionId())
	case *execwirev1.GrantSessionRequest:
		return validateGrant(m)
	case *execwirev1.WriteStdinRequest:
		if len(m.GetWriteId()) > MaxWriteIDBytes {
			return invalidField("write_id", fmt.Sprintf("is longer than %d bytes", MaxWriteIDBytes))
		}
	case *execwirev1.ReadOutputRequest:
		if err := validateDuration("wait", m.GetWait()); err != nil {
			return err
		}
	case *execwirev1.WaitProcessRequest:
		if err := validateWait(m); err != nil {
			return err
		}
	case *execwirev1.ResizeTerminalRequest:
		if err := validateSize("size", m.GetSize()); err != nil {
			return err
		}
	case *execwirev1.SignalProcessRequest:
		if err := validateSignal("", m.GetSignal(), m.GetTarget()); err != nil {
			return err
		}
	case *execwirev1.TerminateProcessRequest:
		if err := validateTermination("termination", m.GetTermination()); err != nil {
			return err
		}
	}
	if m, ok := m.(processReference); ok {
		return validateReference("", m)
	}
	return nil
}

func validateReference(prefix string, m processReference) error {
	if m.GetProcessId() == "" {
		return invalidField(prefix+"process_id", "is empty: name the process")
	}
	return validateIDs(prefix, m)
}

// validateIDs bounds what names a process, also because an error repeats it.
func validateIDs(prefix string, m processReference) error {
	if err := validateID(prefix+"session_id", m.GetSessionId()); err != nil {
		return err
	}
	return validateProcessID(prefix+"process_id", m.GetProcessId())
}

func validateID(field, id string) error { return validateLength(field, id, MaxIDBytes) }

func validateProcessID(field, id string) error { return validateLength(field, id, MaxProcessIDBytes) }

func validateLength(field, id string, most int) error {
	if len(id) > most {
		return invalidField(field, fmt.Sprintf("is longer than %d bytes", most))
	}
	return nil
}

func validateStart(prefix string, m *execwirev1.StartProcessRequest) error {
	if err := validateIDs(prefix, m); err != nil {
		return err
	}
	if err := validateCommand(prefix+"command", m.GetCommand()); err != nil {
		return err
	}
	if size := m.GetIo().GetTerminal().GetSize(); size != nil {
		if err := validateSize(prefix+"io.terminal.size", size); err != nil {
			return err
		}
	}
	if mode := m.GetIo().GetPipes().GetStdin(); mode < 0 || mode > execwirev1.StdinMode_STDIN_MODE_PIPE {
		return invalidField(prefix+"io.pipes.stdin", fmt.Sprintf("cannot be %d", mode))
	}
	if n := len(m.GetStartId()); n > maxStartIDBytes {
		return invalidField(prefix+"start_id", fmt.Sprintf("has %d bytes: use at most %d", n, maxStartIDBytes))
	}
	if err := validateLabels(prefix+"labels", m.GetLabels()); err != nil {
		return err
	}
	return validateLimits(prefix+"limits", m.GetLimits())
}

// validateLabels checks what a caller wants to find with a process again.
func validateLabels(field string, labels map[string]string) error {
	if len(labels) > MaxLabels {
		return invalidField(field, fmt.Sprintf("has %d entries: use at most %d", len(labels), MaxLabels))
	}
	for name, value := range labels {
		switch {
		case name == "":
			return invalidField(field, "has an entry without a name: give it one")
		case len(name) > MaxLabelNameBytes:
			return invalidField(field, fmt.Sprintf("has a name that is longer than %d bytes: use a shorter one", MaxLabelNameBytes))
		case len(value) > MaxLabelValueBytes:
			return invalidField(fmt.Sprintf("%s[%q]", field, name),
				fmt.Sprintf("is longer than %d bytes: use a shorter value", MaxLabelValueBytes))
		}
	}
	return nil
}

func validateCommand(field string, m *execwirev1.ProcessCommand) error {
	switch command := m.GetCommand().(type) {
	case *execwirev1.ProcessCommand_Direct:
		if policy := command.Direct.GetEnvironmentPolicy(); policy != nil {
			if inherit := policy.GetInherit(); inherit < 0 || inherit > execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_ALL {
				return invalidField(field+".direct.environment_policy.inherit", fmt.Sprintf("cannot be %d", inherit))
			}
		}
	case *execwirev1.ProcessCommand_Prepared:
		if !strings.HasPrefix(command.Prepared.GetExecutable(), "/") {
			return invalidField(field+".prepared.executable", "is not an absolute path")
		}
	default:
		return invalidField(field, "is missing: give a direct or a prepared command")
	}
	return nil
}

// validateRun checks the messages that open a stream. What an owner asks for
// later is checked by the handler, because a mistake there must not end the
// stream: see [validateRunInput].
func validateRun(m *execwirev1.RunProcessRequest) error {
	switch message := m.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Start:
		if message.Start.GetProcess() == nil {
			return invalidField("start.process", "is missing")
		}
		if err := validateDuration("start.grace", message.Start.GetGrace()); err != nil {
			return err
		}
		return validateStart("start.process.", message.Start.GetProcess())
	case *execwirev1.RunProcessRequest_Resume:
		if err := validateDuration("resume.grace", message.Resume.GetGrace()); err != nil {
			return err
		}
		return validateReference("resume.", message.Resume)
	}
	return nil
}

// validateRunInput checks what an owner asks for once the stream is open.
func validateRunInput(m *execwirev1.RunProcessRequest) error {
	switch message := m.GetMessage().(type) {
	case *execwirev1.RunProcessRequest_Resize:
		return validateSize("resize", message.Resize)
	case *execwirev1.RunProcessRequest_Signal:
		return validateSignal("signal.", message.Signal.GetSignal(), message.Signal.GetTarget())
	case *execwirev1.RunProcessRequest_Terminate:
		return validateTermination("terminate", message.Terminate)
	case nil:
		return invalidField("message", "is missing: say what the owner wants")
	}
	return nil
}

func validateSize(field string, m *execwirev1.TerminalSize) error {
	if m == nil {
		return invalidField(field, "is missing")
	}
	if rows := m.GetRows(); rows == 0 || rows > maxTerminalSide {
		return invalidField(field+".rows", fmt.Sprintf("is %d: use 1 to %d", rows, maxTerminalSide))
	}
	if columns := m.GetColumns(); columns == 0 || columns > maxTerminalSide {
		return invalidField(field+".columns", fmt.Sprintf("is %d: use 1 to %d", columns, maxTerminalSide))
	}
	return nil
}

func validateSignal(prefix string, signal execwirev1.Signal, target execwirev1.SignalTarget) error {
	if signal <= 0 || signal > maxSignal {
		return invalidField(prefix+"signal", fmt.Sprintf("is %d: use 1 to %d", signal, maxSignal))
	}
	if target < 0 || target > execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND {
		return invalidField(prefix+"target", fmt.Sprintf("cannot be %d", target))
	}
	return nil
}

func validateTermination(field string, m *execwirev1.Termination) error {
	return validateDuration(field+".graceful.timeout", m.GetGraceful().GetTimeout())
}

func validateWait(m *execwirev1.WaitProcessRequest) error {
	if err := validateDuration("wait", m.GetWait()); err != nil {
		return err
	}
	switch condition := m.GetCondition().(type) {
	case *execwirev1.WaitProcessRequest_Pattern:
		if stream := condition.Pattern.GetStream(); stream < 0 || stream > execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL {
			return invalidField("pattern.stream", fmt.Sprintf("cannot be %d", stream))
		}
	case *execwirev1.WaitProcessRequest_Port:
		if port := condition.Port.GetPort(); port == 0 || port > maxPort {
			return invalidField("port.port", fmt.Sprintf("is %d: use 1 to %d", port, maxPort))
		}
	case *execwirev1.WaitProcessRequest_Idle:
		silence := condition.Idle.GetSilence()
		if err := validateDuration("idle.silence", silence); err != nil {
			return err
		}
		if silence.AsDuration() == 0 {
			return invalidField("idle.silence", "is 0 or missing: say how long the process must have been silent")
		}
	}
	return nil
}

// pageRequest is what every request for a page has.
type pageRequest interface {
	GetPageSize() int32
	GetPageToken() string
}

func validatePage(m pageRequest) error {
	if m.GetPageSize() < 0 {
		return invalidField("page_size", "is negative")
	}
	return validateProcessID("page_token", m.GetPageToken())
}

// validateDuration accepts an absent duration, and one that is not negative.
func validateDuration(field string, d *durationpb.Duration) error {
	if d == nil {
		return nil
	}
	if err := d.CheckValid(); err != nil {
		return invalidField(field, "is not a duration: "+err.Error())
	}
	if d.AsDuration() < 0 {
		return invalidField(field, "is negative")
	}
	return nil
}
