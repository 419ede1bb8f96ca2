package daemon

import (
	"time"

	"google.golang.org/grpc"
)

// Services returns the services of the gRPC server.
func (d *Daemon) Services() map[string]grpc.ServiceInfo {
	s := d.newGRPCServer()
	defer s.Stop()
	return s.GetServiceInfo()
}

// SetLinger sets how long a forward keeps one end of a connection after the other has closed.
func (f *Forward) SetLinger(linger time.Duration) { f.linger = linger }

// Requests returns the number of websockets, and of HTTP requests whose handlers run.
func (d *Daemon) Requests() int { return d.clients.handler.Connections() }

// RetainedTotal returns how much output of all processes is retained.
var RetainedTotal = retainedTotal

// WaitingCalls are those that the alert rules leave out.
var WaitingCalls = waitingCalls
