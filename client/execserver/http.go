package execserver

import execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"

// httpService makes requests over HTTP from where the server is.
type httpService struct {
	execwirev1.UnimplementedHttpServiceServer
	conn *Conn
}
