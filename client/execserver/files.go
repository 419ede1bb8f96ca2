package execserver

import execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"

// fileService makes calls on files.
type fileService struct {
	execwirev1.UnimplementedFileSystemServiceServer
	conn *Conn
}
