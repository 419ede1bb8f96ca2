package execserver

import execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"

// environmentService tells what machine and what server this is.
type environmentService struct {
	execwirev1.UnimplementedEnvironmentServiceServer
	conn *Conn
}
