package execserver

import execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"

// register has the calls of every service carried out in the exec-server protocol.
// A method that a service here does not have is one that the protocol has no words
// for.
func (c *Conn) register() {
	execwirev1.RegisterProcessServiceServer(c.channel, &processService{conn: c})
	execwirev1.RegisterSessionServiceServer(c.channel, &sessionService{})
	execwirev1.RegisterFileSystemServiceServer(c.channel, &fileService{conn: c})
	execwirev1.RegisterEnvironmentServiceServer(c.channel, &environmentService{conn: c})
	execwirev1.RegisterHttpServiceServer(c.channel, &httpService{conn: c})
}

// sessionService has no methods: a connection has the one session it began with.
type sessionService struct {
	execwirev1.UnimplementedSessionServiceServer
}
