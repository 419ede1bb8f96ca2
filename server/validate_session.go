package server

import (
	"fmt"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// maxCursors is the most cursors of one attach.
	maxCursors = 10_000
	// maxPrincipalBytes is the longest name of a principal.
	maxPrincipalBytes = 256
)

// validateAttach checks any message of an attachment: unlike an owner's, a
// malformed one can only be a mistake of its program.
func validateAttach(m *execwirev1.AttachSessionRequest) error {
	switch message := m.GetMessage().(type) {
	case *execwirev1.AttachSessionRequest_Attach:
		return validateAttachFirst(message.Attach)
	case *execwirev1.AttachSessionRequest_Acknowledge:
		if message.Acknowledge.GetProcessId() == "" {
			return invalidField("acknowledge.process_id", "is empty: name the process")
		}
		return validateProcessID("acknowledge.process_id", message.Acknowledge.GetProcessId())
	case nil:
		return invalidField("message", "is missing: say what the client wants")
	}
	return nil
}

func validateAttachFirst(m *execwirev1.SessionAttach) error {
	if err := validateID("attach.session_id", m.GetSessionId()); err != nil {
		return err
	}
	if n := len(m.GetAfterSeq()); n > maxCursors {
		return invalidField("attach.after_seq", fmt.Sprintf("has %d cursors: leave out what was acknowledged, at most %d may be there", n, maxCursors))
	}
	for id := range m.GetAfterSeq() {
		if id == "" {
			return invalidField("attach.after_seq", "has a cursor without a process")
		}
		if err := validateProcessID("attach.after_seq", id); err != nil {
			return err
		}
	}
	if _, ok := whenDetached[m.GetWhenDetached()]; !ok {
		return invalidField("attach.when_detached", fmt.Sprintf("cannot be %d", m.GetWhenDetached()))
	}
	return validateDuration("attach.grace", m.GetGrace())
}

// validateSession checks a required session id.
func validateSession(id string) error {
	if id == "" {
		return invalidField("session_id", "is empty: name the session")
	}
	return validateID("session_id", id)
}

func validateGrant(m *execwirev1.GrantSessionRequest) error {
	if err := validateSession(m.GetSessionId()); err != nil {
		return err
	}
	switch n := len(m.GetPrincipal()); {
	case n == 0:
		return invalidField("principal", "is empty: name the principal")
	case n > maxPrincipalBytes:
		return invalidField("principal", fmt.Sprintf("is longer than %d bytes", maxPrincipalBytes))
	}
	if access := m.GetAccess(); access < 0 || access > execwirev1.SessionAccess_SESSION_ACCESS_WRITE {
		return invalidField("access", fmt.Sprintf("cannot be %d", access))
	}
	return nil
}
