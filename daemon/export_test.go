package daemon

import (
	"time"

	"google.golang.org/grpc"
)

// Services returns what the server for all listeners offers.
func (d *Daemon) Services() map[string]grpc.ServiceInfo {
	s, _, _ := d.newGRPCServer()
	defer s.Stop()
	return s.GetServiceInfo()
}

// SetLinger changes how long either end of a forward has when the other one is gone.
func (f *Forward) SetLinger(linger time.Duration) { f.linger = linger }

// RetainedTotal is how much output is kept of all processes.
var RetainedTotal = retainedTotal
