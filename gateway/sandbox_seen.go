package gateway

import "encoding/json"

const (
	// maxSeenSandboxes is how many sandboxes a connection remembers, and
	// maxSeenBytes how large the JSON of one may be.
	maxSeenSandboxes = 4
	maxSeenBytes     = 4 << 10
)

// seenSandboxes are what calls on files of a connection have said about their
// sandboxes, with what it was translated to, which depends on nothing else and does
// not change. A client says the same with every call, and to read it takes longer
// than all the rest of a small one. They are for one goroutine. Nil remembers
// nothing.
type seenSandboxes struct {
	all  []seenSandbox
	next int // which is replaced when there are as many as there may be
}

type seenSandbox struct {
	newer           bool
	sandbox, policy string
	means           confinement
}

func (s *seenSandboxes) find(newer bool, sandbox, policy json.RawMessage) (confinement, bool) {
	if s != nil {
		for i := range s.all {
			if seen := &s.all[i]; seen.newer == newer && seen.sandbox == string(sandbox) && seen.policy == string(policy) {
				return seen.means, true
			}
		}
	}
	return confinement{}, false
}

func (s *seenSandboxes) add(newer bool, sandbox, policy json.RawMessage, means confinement) {
	if s == nil || len(sandbox)+len(policy) > maxSeenBytes {
		return
	}
	seen := seenSandbox{newer, string(sandbox), string(policy), means}
	if len(s.all) < maxSeenSandboxes {
		s.all = append(s.all, seen)
		return
	}
	s.all[s.next] = seen
	s.next = (s.next + 1) % maxSeenSandboxes
}
