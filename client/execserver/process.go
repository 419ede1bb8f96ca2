package execserver

import execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"

// processService makes calls on processes.
type processService struct {
	execwirev1.UnimplementedProcessServiceServer
	conn *Conn
}

// checkSession refuses a session that is not the connection's.
func (s *processService) checkSession(id string) error {
	if id == "" || id == s.conn.sessionID() {
		return nil
	}
	return failure(execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND,
		"session %.100q is not that of this connection, which has no other: leave it out, or reach the server over gRPC", id)
}
