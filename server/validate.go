package server

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Limits of fields that no setting changes.
const (
	// maxIDBytes is the longest id of a session.
	maxIDBytes = 256
	// MaxProcessIDBytes is the longest id of a process, and the longest page
	// token.
	MaxProcessIDBytes = 1024
	// MaxWriteIDBytes is the longest id of a write.
	MaxWriteIDBytes = 128
	// maxCursors is the most cursors of one attach.
	maxCursors = 10_000
	// maxPrincipalBytes is the longest name of a principal.
	maxPrincipalBytes = 256
	// maxHostBytes is the longest name of a host.
	maxHostBytes = 255
)

// processReference is implemented by every request about one process.
type processReference interface {
	GetSessionId() string
	GetProcessId() string
}

// validateFields checks what can be known from a message alone. What depends on the
// machine or on a process is checked where it is used.
func validateFields(m proto.Message) error {
	switch m := m.(type) {
	case *execwirev1.StartProcessRequest:
		return validateStart("", m)
	case *execwirev1.RunProcessRequest:
		return validateOwn(m)
	case *execwirev1.OwnProcessRequest:
		if m.GetMessage() == nil {
			return invalidField("message", "is missing: give start or resume")
		}
		return validateOwn(m)
	case *execwirev1.WriteStdinRequest:
		return cmp.Or(validateWrite(m), validateReference("", m))
	case *execwirev1.ReadOutputRequest:
		return cmp.Or(validateDuration("wait", m.GetWait()), validateReference("", m))
	case *execwirev1.WaitProcessRequest:
		return cmp.Or(validateDuration("wait", m.GetWait()), validateCondition(m), validateReference("", m))
	case *execwirev1.ResizeTerminalRequest:
		return cmp.Or(validateSize("size", m.GetSize()), validateReference("", m))
	case *execwirev1.SignalProcessRequest:
		return cmp.Or(validateSignal("", m.GetSignal(), m.GetTarget()), validateReference("", m))
	case *execwirev1.TerminateProcessRequest:
		return cmp.Or(validateTermination("termination", m.GetTermination()), validateReference("", m))
	case *execwirev1.ListProcessesRequest:
		return cmp.Or(validateLength("session_id", m.GetSessionId(), maxIDBytes), validatePage(m))
	case *execwirev1.ListPortsRequest:
		return validatePortsOf(m)
	case *execwirev1.WatchPortsRequest:
		return validatePortsOf(m)
	case *execwirev1.ConnectPortRequest:
		return cmp.Or(validateConnect(m.GetConnect()), validateAccept(m.GetAccept()))
	case *execwirev1.ListenPortRequest:
		return validateListen(m)
	case *execwirev1.FetchRequest:
		return validateFetch(m)
	case *execwirev1.AttachSessionRequest:
		return validateAttach(m)
	case *execwirev1.ListSessionsRequest:
		return validatePage(m)
	case *execwirev1.CloseSessionRequest:
		return validateName("session_id", m.GetSessionId(), maxIDBytes)
	case *execwirev1.GrantSessionRequest:
		return cmp.Or(validateName("session_id", m.GetSessionId(), maxIDBytes),
			validateName("principal", m.GetPrincipal(), maxPrincipalBytes), validateEnum("access", m.GetAccess()))
	case *execwirev1.UpgradeRequest:
		return cmp.Or(validateName("upgrade_id", m.GetUpgradeId(), maxIDBytes), validateLength("binary", m.GetBinary(), unix.PathMax-1))
	case *execwirev1.GetUpgradeRequest:
		return validateName("upgrade_id", m.GetUpgradeId(), maxIDBytes)
	case ownerReference:
		return cmp.Or(validateName("owner_id", m.GetOwnerId(), maxIDBytes), validateReference("", m))
	case processReference:
		return validateReference("", m)
	}
	return validateFiles(m)
}

// validateReference limits the ids of a process, also because an error repeats them.
func validateReference(prefix string, m processReference) error {
	return cmp.Or(validateName(prefix+"process_id", m.GetProcessId(), MaxProcessIDBytes),
		validateLength(prefix+"session_id", m.GetSessionId(), maxIDBytes))
}

// validatePortsOf limits the ids of a request for ports, in which the process may be absent.
func validatePortsOf(m processReference) error {
	return cmp.Or(validateLength("process_id", m.GetProcessId(), MaxProcessIDBytes),
		validateLength("session_id", m.GetSessionId(), maxIDBytes))
}

// validateConnect accepts nil, a message with data.
func validateConnect(m *execwirev1.PortConnect) error {
	if m == nil {
		return nil
	}
	return cmp.Or(validateLength("connect.session_id", m.GetSessionId(), maxIDBytes), validateLength("connect.host", m.GetHost(), maxHostBytes),
		validatePositive("connect.port", uint64(m.GetPort()), math.MaxUint16))
}

// validateAccept accepts nil, another message.
func validateAccept(m *execwirev1.PortAccept) error {
	if m == nil {
		return nil
	}
	return cmp.Or(validateLength("accept.session_id", m.GetSessionId(), maxIDBytes), validateName("accept.connection_id", m.GetConnectionId(), maxIDBytes))
}

func validateListen(m *execwirev1.ListenPortRequest) error {
	if address := m.GetAddress(); address != "" {
		if addr, err := netip.ParseAddr(address); err != nil || addr.Zone() != "" {
			return invalidField("address", fmt.Sprintf("cannot be %.100q: write an IP address without a zone, for example 127.0.0.1, ::1 or 0.0.0.0", address))
		}
	}
	return cmp.Or(validateLength("session_id", m.GetSessionId(), maxIDBytes), validateMost("port", uint64(m.GetPort()), math.MaxUint16),
		validateLength("listener_id", m.GetListenerId(), maxIDBytes))
}

// validateName checks a required name.
func validateName(field, name string, most int) error {
	if name == "" {
		return invalidField(field, "is empty: give a name")
	}
	return validateLength(field, name, most)
}

func validateLength(field, text string, most int) error {
	if len(text) > most {
		return invalidField(field, fmt.Sprintf("is longer than %d bytes", most))
	}
	return nil
}

func validateMost(field string, value, most uint64) error {
	if value > most {
		return invalidField(field, fmt.Sprintf("is %d: use at most %d", value, most))
	}
	return nil
}

// validateOffset limits an offset to what a file can have.
func validateOffset(field string, offset uint64) error {
	return validateMost(field, offset, math.MaxInt64)
}

func validatePositive(field string, value, most uint64) error {
	if value < 1 || value > most {
		return invalidField(field, fmt.Sprintf("is %d: use 1 to %d", value, most))
	}
	return nil
}

// validateEnum accepts the values that the contract names.
func validateEnum(field string, value protoreflect.Enum) error {
	if value.Descriptor().Values().ByNumber(value.Number()) == nil {
		return invalidField(field, fmt.Sprintf("cannot be %d", value.Number()))
	}
	return nil
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

// pageRequest is implemented by every request for a page.
type pageRequest interface {
	GetPageSize() int32
	GetPageToken() string
}

func validatePage(m pageRequest) error {
	if m.GetPageSize() < 0 {
		return invalidField("page_size", "is negative")
	}
	return validateLength("page_token", m.GetPageToken(), MaxProcessIDBytes)
}

// validateFetch validates what package httpclient does not.
func validateFetch(m *execwirev1.FetchRequest) error {
	for i, h := range m.GetHeaders() {
		if h.GetValue() != "" && len(h.GetRawValue()) > 0 {
			return invalidField(fmt.Sprintf("headers[%d].raw_value", i), "is there beside value: give one of them")
		}
	}
	return cmp.Or(validateDuration("timeout", m.GetTimeout()), validateEnum("redirect_policy", m.GetRedirectPolicy()))
}

// validateAttach validates any message of an attachment. Unlike that of an owner's
// stream, a malformed message ends the attachment.
func validateAttach(m *execwirev1.AttachSessionRequest) error {
	switch message := m.GetMessage().(type) {
	case *execwirev1.AttachSessionRequest_Attach:
		return validateAttachFirst(message.Attach)
	case *execwirev1.AttachSessionRequest_Acknowledge:
		return validateName("acknowledge.process_id", message.Acknowledge.GetProcessId(), MaxProcessIDBytes)
	case nil:
		return invalidField("message", "is missing: set attach or acknowledge")
	}
	return nil
}

func validateAttachFirst(m *execwirev1.SessionAttach) error {
	if n := len(m.GetAfterSeq()); n > maxCursors {
		return invalidField("attach.after_seq", fmt.Sprintf("has %d cursors: leave out what was acknowledged, at most %d may be there", n, maxCursors))
	}
	for id := range m.GetAfterSeq() {
		if err := validateName("attach.after_seq", id, MaxProcessIDBytes); err != nil {
			return err
		}
	}
	return cmp.Or(validateLength("attach.session_id", m.GetSessionId(), maxIDBytes),
		validateEnum("attach.when_detached", m.GetWhenDetached()), validateDuration("attach.grace", m.GetGrace()))
}
