package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	"github.com/execwire/execwire/cmd/execwire/internal/portforward"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/syserr"
)

type portsFlags struct {
	session     string
	watch, json bool
}

func newPortsCommand(std streams) *cobra.Command {
	var flags portsFlags
	command := &cobra.Command{
		Use:   "ports [--watch] [--json] [PROCESS]",
		Short: "List the ports on which processes listen",
		Long: `ports lists the TCP ports on which the processes of a session listen, or the process
with the id PROCESS, with their descendants. Reach them with execwire port-forward.
Processes with a network of their own, for example in a sandbox with restricted
network, have no ports here.

With --watch it prints the ports that are open, and then those that are opened and
closed, each with that word in front. It ends when PROCESS has closed, when the
connection is lost, or by a signal.

With --json each port is an object on its own line: process, pid, program, address
and port, and with --watch event (opened or closed).`,
		Example: `  execwire ports
  execwire ports --watch dev-server
  execwire ports --json | jq .port`,
		Args: func(command *cobra.Command, arguments []string) error { return atMost(command, arguments, 1) },
	}
	f := command.Flags()
	f.BoolVarP(&flags.watch, "watch", "w", false, "keep printing changes")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addSessionFlag(command, &flags.session)
	onServer(command, serverUse{persistent: true, untilSignal: true, completes: complete.Process}, func(ctx context.Context, c *client.Client, arguments []string) error {
		process := ""
		if len(arguments) > 0 {
			process = arguments[0]
		}
		if flags.watch {
			return watchPorts(ctx, c, flags, process, std)
		}
		return listPorts(ctx, c, flags, process, std)
	})
	return command
}

// portObject is the JSON output for a port.
type portObject struct {
	Event   string `json:"event,omitempty"`
	Process string `json:"process"`
	PID     int32  `json:"pid"`
	Program string `json:"program,omitempty"`
	Address string `json:"address"`
	Port    uint32 `json:"port"`
}

func describePort(event string, p *execwirev1.Port) (portObject, []string) {
	return portObject{Event: event, Process: p.GetProcessId(), PID: p.GetPid(), Program: p.GetProgram(), Address: p.GetAddress(), Port: p.GetPort()},
		[]string{printable(p.GetProcessId()), strconv.Itoa(int(p.GetPid())), printable(p.GetProgram()), p.GetAddress(), strconv.Itoa(int(p.GetPort()))}
}

// errMorePorts follows a list that is not complete.
var errMorePorts = errors.New("there are more ports: name a process")

func listPorts(ctx context.Context, c *client.Client, flags portsFlags, process string, std streams) error {
	resp, err := c.ListPorts(ctx, &execwirev1.ListPortsRequest{SessionId: flags.session, ProcessId: process})
	if err != nil {
		return err
	}
	list := newListing(std, flags.json, "PROCESS", "PID", "PROGRAM", "ADDRESS", "PORT")
	for _, p := range resp.GetPorts() {
		object, row := describePort("", p)
		if err := list.add(object, row...); err != nil {
			return err
		}
	}
	if err := list.end(); err != nil || !resp.GetTruncated() {
		return err
	}
	return errMorePorts
}

func watchPorts(ctx context.Context, c *client.Client, flags portsFlags, process string, std streams) error {
	show := func(event string, list []*execwirev1.Port) error {
		for _, p := range list {
			object, row := describePort(event, p)
			var err error
			if flags.json {
				err = printJSON(std.out, object)
			} else {
				_, err = fmt.Fprintf(std.out, "%s\t%s\t%s\t%s\t%s\t%s\n", event, row[0], row[1], row[2], row[3], row[4])
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return c.WatchPorts(ctx, &execwirev1.WatchPortsRequest{SessionId: flags.session, ProcessId: process}, func(m *execwirev1.WatchPortsResponse) error {
		if err := show("closed", m.GetClosed()); err != nil {
			return err
		}
		return show("opened", m.GetOpened())
	})
}

type portForwardFlags struct {
	addresses []string
	dynamic   []string
	remote    []string
	session   string
	json      bool
}

func newPortForwardCommand(std streams) *cobra.Command {
	var flags portForwardFlags
	command := &cobra.Command{
		Use:   "port-forward [--address ADDRESS] [-D [ADDRESS:]PORT] [-R [ADDRESS:]REMOTE:[HOST:]LOCAL] [[LOCAL:]REMOTE]...",
		Short: "Forward local ports to ports of processes on a server, and ports of the server to this host",
		Long: `port-forward listens on local ports and forwards each connection to a port on which a
process of the session listens on the server, also through a hub. It prints where it
listens, and forwards until it gets a signal.

  8000                    local port 8000 to port 8000
  8080:8000               local port 8080 to port 8000
  :8000 or 0:8000         a free local port to port 8000
  8080:db.internal:5432   to another host, if the server's setting ports_allow has it

A process may begin to listen later. A connection that fails is reported on stderr and
ends nothing else; its client gets a reset, never an end of file. After the connection
to the server was lost, new connections work again.

Every program of this host can use a local port, as the user of this command. With
-D port-forward is a SOCKS5 proxy, on loopback only: its clients name the host and
the port. To forward connections of gRPC clients to a server, use execwire forward.

With -R the server listens, on its loopback, and each connection is forwarded to a port
of this host, or of another one that this host reaches:

  -R 8080:3000                     the server's port 8080 to port 3000 of this host
  -R :3000 or 0:3000               a free port of the server
  -R 8080:db.internal:5432         to another host
  -R 0.0.0.0:8080:localhost:3000   at another address of the server, if its setting
                                   ports_listen is any; * is all addresses

Every program on the server's machine can use that port. After the connection to the
server was lost, the server listens again, on the same port, and port-forward prints
that once more. If it cannot, for another reason than that the port is in use,
port-forward ends.

With --json each forward is an object on its own line: forward (local, dynamic or
remote), listen, and to, which dynamic does not have.`,
		Example: `  execwire run --detach -- python3 -m http.server 8000
  execwire port-forward 8080:8000
  execwire port-forward --hub https://hub.example.org --executor build-1 :8000
  execwire port-forward -D 1080
  execwire port-forward -R 5432:localhost:5432`,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments)+len(flags.dynamic)+len(flags.remote) == 0 {
				return usageError(command, errors.New("name a port, for example 8080:8000"))
			}
			return nil
		},
	}
	f := command.Flags()
	f.StringSliceVar(&flags.addresses, "address", []string{"127.0.0.1"}, "the local `ADDRESS` to listen on; may be repeated")
	f.StringArrayVarP(&flags.dynamic, "dynamic", "D", nil, "also be a SOCKS5 proxy at `[ADDRESS:]PORT`, on loopback; may be repeated")
	f.StringArrayVarP(&flags.remote, "remote", "R", nil, "also forward a port of the server to this host, `[ADDRESS:]REMOTE:[HOST:]LOCAL`; may be repeated")
	f.BoolVar(&flags.json, "json", false, "print JSON objects, one per line")
	addSessionFlag(command, &flags.session)
	var listeners []*portforward.Listener
	var remotes []portforward.RemoteSpec
	onServer(command, serverUse{persistent: true}, func(ctx context.Context, c *client.Client, _ []string) error {
		return untilSignal(ctx, func(ctx context.Context) error { return portForward(ctx, c, flags, listeners, remotes, std) })
	})
	serve := command.RunE
	command.RunE = func(command *cobra.Command, arguments []string) (err error) {
		for _, text := range flags.remote {
			spec, err := portforward.ParseRemote(text)
			if err != nil {
				return usageError(command, err)
			}
			remotes = append(remotes, spec)
		}
		if listeners, err = openForwards(command, flags, arguments); err != nil {
			return err
		}
		defer closeForwards(listeners)
		return serve(command, arguments)
	}
	return command
}

// openForwards opens all listeners, or none.
func openForwards(command *cobra.Command, flags portForwardFlags, arguments []string) (listeners []*portforward.Listener, err error) {
	defer func() {
		if err != nil {
			closeForwards(listeners)
		}
	}()
	open := func(address string, spec portforward.Spec, socks bool) error {
		l, err := portforward.Listen(address, spec)
		if err != nil {
			exit := &exitError{code: codeFailed, err: err}
			if syserr.IsInUse(err) {
				exit.hint = "take a free port with :" + strconv.Itoa(int(spec.Remote))
			}
			return exit
		}
		l.Socks = socks
		listeners = append(listeners, l)
		return nil
	}
	for _, argument := range arguments {
		spec, err := portforward.ParseSpec(argument)
		if err != nil {
			return listeners, usageError(command, err)
		}
		for _, address := range flags.addresses {
			if err := open(address, spec, false); err != nil {
				return listeners, err
			}
		}
	}
	for _, text := range flags.dynamic {
		at, err := portforward.ParseDynamic(text)
		if err != nil {
			return listeners, usageError(command, err)
		}
		if err := open(at.Addr().String(), portforward.Spec{Local: at.Port()}, true); err != nil {
			return listeners, err
		}
	}
	return listeners, nil
}

func closeForwards(listeners []*portforward.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// forwardObject is the JSON output for a forward.
type forwardObject struct {
	Forward string `json:"forward"`
	Listen  string `json:"listen"`
	To      string `json:"to,omitempty"`
}

// portForward forwards until a signal, which is no error.
func portForward(ctx context.Context, c *client.Client, flags portForwardFlags, listeners []*portforward.Listener, remotes []portforward.RemoteSpec, std streams) error {
	var printing sync.Mutex
	show := func(object forwardObject, text string) error {
		printing.Lock()
		defer printing.Unlock()
		if flags.json {
			return printJSON(std.out, object)
		}
		return printLine(std.out, text)
	}
	for _, l := range listeners {
		object := forwardObject{"local", l.Addr().String(), l.Spec.Target()}
		to := object.To
		if l.Socks {
			object.Forward, object.To = "dynamic", ""
			to = "any port (SOCKS5)"
		}
		if err := show(object, fmt.Sprintf("Forwarding from %s -> %s", object.Listen, to)); err != nil {
			return err
		}
	}
	forwarder := &portforward.Forwarder{Client: c, SessionID: flags.session, Report: func(err error) {
		printing.Lock()
		defer printing.Unlock()
		report(std.err, explain(err, nil))
	}}
	showRemote := func(r *portforward.RemoteListener) error {
		return show(forwardObject{"remote", r.Addr().String(), r.Spec.Target}, fmt.Sprintf("Forwarding from %s of the server -> %s", r.Addr(), r.Spec.Target))
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, spec := range remotes {
		r, err := forwarder.ListenRemote(ctx, spec)
		if err == nil {
			err = showRemote(r)
			all.Go(func() error { return forwarder.ServeRemote(ctx, r, showRemote) })
		}
		if err != nil {
			all.Go(func() error { return err })
			break
		}
	}
	all.Go(func() error {
		forwarder.Serve(ctx, listeners)
		return nil
	})
	return all.Wait()
}
