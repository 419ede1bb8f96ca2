package client

// ProcessRef names a process that is there.
type ProcessRef struct {
	// SessionID is its session; empty is the default session.
	SessionID string
	// ProcessID is its id. Required.
	ProcessID string
	// AfterSeq is the seq of the last event that the caller has already, by
	// which it is acknowledged; 0 begins with all that is retained.
	AfterSeq uint64
}
