package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/server"
)

// Sizes of the transport. The windows are static, which turns gRPC's bandwidth
// estimation off; the connection's must be set with the stream's or it stays at
// 64 KiB.
const (
	streamWindow     = 8 << 20
	connectionWindow = 16 << 20
	bufferSize       = 128 << 10
)

// flushTimeout is how long clients may take to receive the end of their
// processes when the daemon stops.
const flushTimeout = 5 * time.Second

// errFlush ends the wait for clients that do not receive it.
var errFlush = errors.New("clients did not receive the end of their processes in time")

// Serve opens the configured listeners and serves until ctx ends. Then it
// drains: health answers NOT_SERVING, nothing new is started, processes that
// run may finish within the shutdown grace and are terminated after it, their
// owners are told how they ended, and Serve returns nil. A second context, now,
// cuts the grace short. If a listener cannot be opened nothing is served and the
// error says why.
func (d *Daemon) Serve(ctx, now context.Context) error {
	listeners, err := d.openListeners(ctx)
	if err != nil {
		return err
	}
	grpcServer, healthServer := d.newGRPCServer()
	var serving sync.WaitGroup
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		serving.Go(func() {
			if err := grpcServer.Serve(l); err != nil {
				failed <- fmt.Errorf("failed to serve %s: %w", l.URL(), err)
			}
		})
		if d.opts.OnListen != nil {
			d.opts.OnListen(l.URL().String())
		}
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	healthServer.Shutdown()
	d.drain(now)
	// Owners are told how their processes ended before their streams are.
	err = errors.Join(err, d.endProcesses())
	stopServer(grpcServer)
	serving.Wait()
	return errors.Join(err, d.Close())
}

// openListeners opens all listeners or none.
func (d *Daemon) openListeners(ctx context.Context) (list []listen.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range list {
				_ = l.Close()
			}
		}
	}()
	for _, raw := range d.cfg.Listen {
		url, err := listen.Parse(raw)
		if err != nil {
			return list, err
		}
		if url.Scheme == listen.SchemeOff {
			continue
		}
		l, err := listen.Listen(ctx, url)
		if err != nil {
			return list, err
		}
		list = append(list, l)
	}
	return list, nil
}

// newGRPCServer makes the server for all listeners. Reflection is on: every
// listener there is yet is loopback or a unix socket.
func (d *Daemon) newGRPCServer() (*grpc.Server, *health.Server) {
	s := grpc.NewServer(
		grpc.Creds(listen.PeerCredentials()),
		grpc.ChainUnaryInterceptor(d.server.UnaryInterceptors()...),
		grpc.ChainStreamInterceptor(d.server.StreamInterceptors()...),
		// Twice the limit, so that the server can explain what it refuses.
		grpc.MaxRecvMsgSize(2*int(d.cfg.Message)),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.WriteBufferSize(bufferSize),
		grpc.ReadBufferSize(bufferSize),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:    time.Duration(d.cfg.KeepaliveInterval),
			Timeout: time.Duration(d.cfg.KeepaliveTimeout),
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             time.Duration(d.cfg.KeepaliveInterval) / 3,
			PermitWithoutStream: true,
		}),
		grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(server.UnknownMethod),
	)
	d.server.Register(s)
	healthServer := health.NewServer()
	healthpb.RegisterHealthServer(s, healthServer)
	reflection.Register(s)
	return s, healthServer
}

// drain lets processes finish within the shutdown grace, unless now ends first.
func (d *Daemon) drain(now context.Context) {
	d.sessions.Drain()
	if n := d.sessions.Active(); n > 0 && d.opts.OnDrain != nil && now.Err() == nil {
		d.opts.OnDrain(n)
	}
	grace, cancel := context.WithTimeoutCause(now, time.Duration(d.cfg.ShutdownGrace), errors.New("the shutdown grace is over"))
	defer cancel()
	if err := d.sessions.WaitIdle(grace); err != nil {
		d.opts.Logger.Info("terminating the processes that are left", "processes", d.sessions.Active(), "reason", err.Error())
	}
}

// stopServer lets handlers send what they have, and then cuts off clients that
// do not receive it.
func stopServer(s *grpc.Server) {
	timer := time.AfterFunc(flushTimeout, s.Stop)
	defer timer.Stop()
	s.GracefulStop()
}

var _ net.Listener = listen.Listener(nil)
