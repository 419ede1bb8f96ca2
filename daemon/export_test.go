package daemon

import "google.golang.org/grpc"

// Services returns what the server for all listeners offers.
func (d *Daemon) Services() map[string]grpc.ServiceInfo {
	s, _ := d.newGRPCServer()
	defer s.Stop()
	return s.GetServiceInfo()
}
