package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/execwire/execwire/gateway"
	handoverv1 "github.com/execwire/execwire/gen/go/execwire/handover/v1"
	"github.com/execwire/execwire/internal/cgroup"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/handover"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server/admin"
)

const (
	// checkTimeout bounds the check of a new program.
	checkTimeout = 30 * time.Second
	// freezeTimeout bounds the time in which the server does not serve before it goes on
	// with the old program.
	freezeTimeout = 10 * time.Second
	// partTimeout is how long clients may take to part from their connections before these
	// are cut.
	partTimeout = 100 * time.Millisecond
)

var (
	errFreeze  = fmt.Errorf("the server did not come to rest within %v", freezeTimeout)
	errCheck   = fmt.Errorf("it did not answer within %v", checkTimeout)
	errNotNow  = errors.New("the server stops")
	errUpgrade = errors.New("another upgrade is under way: try again when it is over")
	errStdio   = errors.New("it serves a client of the standard streams, which cannot connect again")
)

// Upgrades lets a program be replaced by another one, mostly a newer version of it, which
// goes on with its processes, sessions and listeners. [TakeUpgrades] returns one.
type Upgrades struct {
	// Args and Environ are the arguments of the new program, from argv[0] on, and its
	// environment: those with which this program was started.
	Args, Environ []string
	// Keep are descriptors that the new program finds by environment variables of these
	// names. Nil keeps none beside those of the daemon.
	Keep map[string]syscall.Conn

	state *handover.State // of the program before; nil: there was none
}

// TakeUpgrades returns the upgrades of this program, with the state of the program that has
// replaced itself by this one. Call it once, before anything is started. An error means that
// there was one, and that its state cannot be used: the processes that it had have to end.
func TakeUpgrades() (*Upgrades, error) {
	state, err := handover.Take()
	return &Upgrades{state: state}, err
}

// Upgraded reports whether this program goes on with the state of another one.
func (u *Upgrades) Upgraded() bool { return u != nil && u.state != nil }

// instance returns the instance with which this program goes on; empty for a new one.
func (u *Upgrades) instance() string {
	if !u.Upgraded() {
		return ""
	}
	return u.state.GetInstanceId()
}

// openCgroups opens the pool of control groups, or goes on with that of the program before.
func (u *Upgrades) openCgroups(cfg config.Config) (*cgroup.Pool, error) {
	if !u.Upgraded() {
		return cgroup.Open(cfg.Cgroup)
	}
	if u.state.Sessions == nil {
		return nil, errors.New("the state of the program before has no sessions")
	}
	return cgroup.Restore(u.state.Sessions.Processes.Cgroups), nil
}

// openSessions makes the sessions, or goes on with those of the program before.
func (u *Upgrades) openSessions(processes process.Config, sessions session.Config) (*process.Supervisor, *session.Registry, error) {
	if !u.Upgraded() {
		supervisor := process.NewSupervisor(processes)
		return supervisor, session.NewRegistry(supervisor, sessions), nil
	}
	defer u.state.Release()
	registry, supervisor, err := session.Restore(processes, sessions, u.state.Sessions)
	return supervisor, registry, err
}

// sockets returns the sockets of the program before. The first call takes them.
func (u *Upgrades) sockets() (*listen.Taken, error) {
	if !u.Upgraded() {
		return nil, nil
	}
	var sockets []listen.Socket
	for _, l := range u.state.GetListeners() {
		url, err := listen.Parse(l.GetUrl())
		if err == nil {
			var socket net.Listener
			if socket, err = socketOf(l); err == nil {
				sockets = append(sockets, listen.Socket{Asked: url, Listener: socket, Device: l.GetDevice(), Inode: l.GetInode()})
				continue
			}
		}
		_ = listen.NewTaken(sockets).Close()
		return nil, fmt.Errorf("failed to take over the listener %s: %w", l.GetUrl(), err)
	}
	u.state.Listeners = nil
	return listen.NewTaken(sockets), nil
}

func socketOf(l *handoverv1.Listener) (net.Listener, error) {
	file := os.NewFile(uintptr(l.GetFd()), l.GetUrl())
	defer func() { _ = file.Close() }()
	socket, err := net.FileListener(file) // a duplicate
	if local, ok := socket.(*net.UnixListener); ok {
		local.SetUnlinkOnClose(false) // the path has changed since it was bound
	}
	return socket, err
}

// CheckUpgrade answers a check of the program before, whose state is in a file: it returns
// an error if a server of this program with the configuration could not go on with it.
func CheckUpgrade(cfg Config, opts Options, file *os.File) error {
	state, err := handover.Open(file)
	if err != nil {
		return err
	}
	defer state.Release()
	if err := cfg.Validate(); err != nil {
		return err
	}
	opts = opts.withDefaults(cfg)
	var before []string
	for _, l := range state.GetListeners() {
		before = append(before, l.GetUrl())
	}
	if now := networkListeners(cfg.Listen); strings.Join(now, " ") != strings.Join(before, " ") {
		return &config.Error{Setting: "listen", Problem: fmt.Sprintf("is %q in the configuration now, and the server listens on %q", now, before),
			Fix: "restart the server to change its listeners"}
	}
	if cfg.Guardian != state.GetGuardian() {
		return &config.Error{Setting: "guardian", Problem: fmt.Sprintf("is %q in the configuration now, and the server runs with %q", cfg.Guardian, state.GetGuardian()),
			Fix: "restart the server to change its guardian"}
	}
	authenticator, err := newAuthenticator(cfg, opts.Logger, newServerMetrics(opts.Version))
	if err != nil {
		return err
	}
	if cfg.TLSCertificate != "" && cfg.TLSKey != "" {
		if _, err := (opener{cfg: cfg, authenticator: authenticator, logger: opts.Logger}).loadTLS(); err != nil {
			return err
		}
	}
	sandboxes, _, err := openSandboxes(cfg, opts.Environ)
	if err != nil {
		return err
	}
	sandboxes.Close()
	if _, err := openRecorder(cfg, opts.Logger); err != nil { // it has nothing open
		return err
	}
	return checkHistory(cfg)
}

// networkListeners returns the URLs of listeners that have a socket.
func networkListeners(urls []string) (network []string) {
	for _, raw := range urls {
		if url, err := listen.Parse(raw); err == nil && url.Scheme != listen.SchemeOff && url.Scheme != listen.SchemeStdio {
			network = append(network, url.String())
		}
	}
	return network
}

// upgrades are the upgrades of a daemon.
type upgrades struct {
	begun chan *upgrade // received while the daemon serves
	over  chan struct{} // closed when it does not serve any more

	mu     sync.Mutex
	busy   bool          // guarded by mu; a check or an upgrade is under way
	latest UpgradeStatus // guarded by mu
}

// UpgradeStatus is an upgrade of a server; see [Daemon.BeginUpgrade].
type UpgradeStatus = admin.Upgrade

// upgrade is an upgrade that has begun.
type upgrade struct {
	id      string
	version string // of the new program
	program handover.Program
}

// newUpgrades returns the upgrades of a daemon of a version.
func newUpgrades(u *Upgrades, version string) *upgrades {
	all := &upgrades{begun: make(chan *upgrade), over: make(chan struct{})}
	if u.Upgraded() {
		// It is done when logUpgraded says so: clients may ask before.
		all.latest = UpgradeStatus{ID: u.state.GetUpgradeId(), Previous: u.state.GetProgramVersion(), Version: version, Running: true}
	}
	return all
}

// BeginUpgrade checks whether the binary at an absolute path can replace this program, and
// begins to replace it, with the options of [Options.Upgrades]. An empty path is that of
// this program, where a newer version may be by now. It returns when the connections of
// clients are about to be closed, or an error if nothing is going to change. The id, which
// the caller chooses, is for [Daemon.Upgrade].
func (d *Daemon) BeginUpgrade(ctx context.Context, id, path string) (UpgradeStatus, error) {
	next, err := d.prepareUpgrade(ctx, id, path)
	if err != nil {
		return UpgradeStatus{}, err
	}
	return UpgradeStatus{ID: id, Previous: d.opts.Version, Version: next.version, Running: true}, nil
}

func (d *Daemon) prepareUpgrade(ctx context.Context, id, path string) (next *upgrade, err error) {
	options := d.opts.Upgrades
	if options == nil {
		return nil, errors.New("this program cannot be replaced while it runs")
	}
	if slices.ContainsFunc(d.settings().Listen, isStdio) {
		return nil, errStdio
	}
	if !d.upgrades.begin() {
		return nil, errUpgrade
	}
	defer func() {
		if err != nil {
			d.upgrades.end()
		}
	}()
	if path == "" {
		if path, err = installedPath(); err != nil {
			return nil, err
		}
	}
	file, err := handover.OpenProgram(path)
	if err != nil {
		return nil, err
	}
	next = &upgrade{id: id, program: handover.Program{File: file, Args: options.Args, Environ: options.Environ}}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	if next.version, err = d.checkProgram(ctx, next.program); err != nil {
		return nil, err
	}
	d.upgrades.set(UpgradeStatus{ID: id, Previous: d.opts.Version, Version: next.version, Running: true})
	select {
	case d.upgrades.begun <- next:
		return next, nil
	case <-d.upgrades.over:
		err = errNotNow
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	d.upgrades.set(UpgradeStatus{ID: id, Previous: d.opts.Version, Version: next.version, Err: err})
	return nil, err
}

// installedPath returns the path from which this program was started.
func installedPath() (string, error) {
	path, err := os.Readlink("/proc/self/exe")
	return strings.TrimSuffix(path, " (deleted)"), err
}

func isStdio(raw string) bool {
	url, err := listen.Parse(raw)
	return err == nil && url.Scheme == listen.SchemeStdio
}

// checkProgram runs a check of the new program, and returns its version.
func (d *Daemon) checkProgram(ctx context.Context, program handover.Program) (string, error) {
	state := d.upgradeState("")
	for _, url := range networkListeners(d.settings().Listen) {
		state.Listeners = append(state.Listeners, &handoverv1.Listener{Url: url})
	}
	sample, err := handover.Seal(state, nil, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = sample.Close() }()
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, errCheck)
	defer cancel()
	report, err := handover.Check(ctx, program, sample)
	return report.Version, err
}

// upgradeState returns the state without listeners and sessions.
func (d *Daemon) upgradeState(id string) *handoverv1.State {
	return &handoverv1.State{ProgramVersion: d.opts.Version, InstanceId: d.server.Instance(), UpgradeId: id, Guardian: d.settings().Guardian}
}

// Upgrade returns the state of an upgrade, and whether it is the last one.
func (d *Daemon) Upgrade(id string) (UpgradeStatus, bool) {
	d.upgrades.mu.Lock()
	defer d.upgrades.mu.Unlock()
	return d.upgrades.latest, d.upgrades.latest.ID == id && id != ""
}

func (u *upgrades) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.busy {
		return false
	}
	u.busy = true
	return true
}

func (u *upgrades) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy = false
}

func (u *upgrades) set(latest UpgradeStatus) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.latest = latest
}

// done records that the upgrade by which this program has come is done.
func (u *upgrades) done(pause time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.latest.Pause, u.latest.Running = pause, false
}

// upgrade replaces this program. It returns only if that fails: the daemon then serves as
// before, without the connections of its clients. An error ends it, and the result is on.
func (d *Daemon) upgrade(ctx context.Context, next *upgrade, open *listeners, on *serving) (*serving, error) {
	began := time.Now()
	d.opts.Logger.Info("upgrading", "version", next.version, "program", next.program.File.Name())
	limit, cancel := context.WithTimeoutCause(ctx, freezeTimeout, errFreeze)
	defer cancel()
	defer func() { _ = next.program.File.Close() }()
	defer d.upgrades.end()
	failed := func(err error) {
		d.opts.Logger.Error("the upgrade has failed: this program goes on", "version", next.version, "error", err)
		d.upgrades.set(UpgradeStatus{ID: next.id, Previous: d.opts.Version, Version: next.version, Err: err, Pause: time.Since(began)})
	}
	if err := handover.Fail(handover.Freeze); err != nil {
		failed(err)
		return on, nil
	}
	err := d.replace(limit, next, open, on, began)
	d.reloading.Lock()
	defer d.reloading.Unlock()
	again, goOn := d.goOn(open)
	if goOn != nil {
		return on, errors.Join(err, goOn)
	}
	failed(err)
	return again, nil
}

// goOn serves clients again after replace.
func (d *Daemon) goOn(open *listeners) (*serving, error) {
	clients, err := d.newClients()
	if err != nil {
		return nil, err
	}
	d.clients = clients
	if err := open.resume(); err != nil {
		return nil, err
	}
	return d.begin(open)
}

// replace brings the daemon to rest and executes the new program. It returns only if that
// fails; nothing serves clients then, and the sessions go on.
func (d *Daemon) replace(limit context.Context, next *upgrade, open *listeners, on *serving, began time.Time) error {
	on.probed(gateway.ErrReplaced)
	if err := errors.Join(open.pause(), d.part(limit, open, on)); err != nil {
		return err
	}
	recordings := d.recordings.Hold()
	defer d.recordings.Resume()
	sessions, err := d.sessions.Freeze(limit)
	if err != nil {
		return err
	}
	defer d.sessions.Thaw()
	if err := handover.Fail(handover.Frozen); err != nil {
		return err
	}
	state := d.upgradeState(next.id)
	state.FrozenTime = timestamppb.New(began)
	var keep handover.Descriptors
	if err := open.handOver(state, &keep); err != nil {
		return err
	}
	uploads, resume, err := d.server.Uploads().Hold()
	if err != nil {
		return err
	}
	defer resume()
	handOverUploads(uploads, state, &keep)
	handOverRecordings(recordings, state)
	program := next.program
	for name, file := range d.opts.Upgrades.Keep {
		fd, err := keep.Add(file)
		if err != nil {
			return err
		}
		program.Environ = append(slices.Clip(program.Environ), fmt.Sprintf("%s=%d", name, fd))
	}
	file, err := handover.Seal(state, sessions, &keep)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := handover.Fail(handover.Written); err != nil {
		return err
	}
	if errors.Is(limit.Err(), context.Canceled) { // the new program would not know that it is to stop
		return context.Cause(limit)
	}
	return handover.Replace(program, file, keep)
}

// part ends the connections of all clients as if they were lost, and waits until no call is
// under way.
func (d *Daemon) part(limit context.Context, open *listeners, on *serving) error {
	var errs [3]error
	parted := runAsync(func() {
		var parts sync.WaitGroup
		parts.Go(on.grpc.Stop)
		clients := d.clients
		parts.Go(func() { errs[0] = clients.lose(limit) })
		if on.relayed != nil {
			parts.Go(func() { errs[1] = on.relayed.lose() })
		}
		parts.Wait()
		on.goroutines.Wait()
		errs[2] = d.channel.WaitQuiet(limit)
		d.server.WaitReceivers()
	})
	if !within(partTimeout, parted) {
		open.disconnect() // clients that neither read nor answer the end of a websocket
	}
	select {
	case <-parted:
		return errors.Join(errs[:]...)
	case <-limit.Done():
		return context.Cause(limit)
	}
}

// handOver adds the listeners to a state.
func (l *listeners) handOver(state *handoverv1.State, keep *handover.Descriptors) error {
	for _, one := range l.inOrder {
		socket := one.Socket()
		file, ok := socket.Listener.(syscall.Conn)
		if !ok {
			return fmt.Errorf("the listener %s has no descriptor", socket.Asked)
		}
		fd, err := keep.Add(file)
		if err != nil {
			return err
		}
		state.Listeners = append(state.Listeners, &handoverv1.Listener{Url: socket.Asked.String(), Fd: fd, Device: socket.Device, Inode: socket.Inode})
	}
	return nil
}

// handOverUploads adds uploads to a state.
func handOverUploads(uploads []fsops.HeldUpload, state *handoverv1.State, keep *handover.Descriptors) {
	for _, u := range uploads {
		m := &handoverv1.Upload{
			Owner: u.Owner, Id: u.ID, Path: u.Path, Received: u.Received, ExpireTime: timestamppb.New(u.Expires),
			Name: u.Name, TemporaryName: u.TemporaryName, Digest: u.Digest, Sha256: u.SHA256, Created: u.Created,
		}
		if len(u.SHA256) == 0 {
			m.Directory, m.File = keep.AddNumber(u.Directory), keep.AddNumber(u.File)
		}
		state.Uploads = append(state.Uploads, m)
	}
}

// uploads returns the uploads of the program before.
func (u *Upgrades) uploads() (held []fsops.HeldUpload) {
	if !u.Upgraded() {
		return nil
	}
	for _, m := range u.state.GetUploads() {
		held = append(held, fsops.HeldUpload{
			Owner: m.GetOwner(), ID: m.GetId(), Path: m.GetPath(), Received: m.GetReceived(), Expires: m.GetExpireTime().AsTime(),
			Directory: int(m.GetDirectory()), File: int(m.GetFile()), Name: m.GetName(), TemporaryName: m.GetTemporaryName(),
			Digest: m.GetDigest(), SHA256: m.GetSha256(), Created: m.GetCreated(),
		})
	}
	return held
}

// logUpgraded logs and records that this program has replaced another one and serves.
func (d *Daemon) logUpgraded() {
	u := d.opts.Upgrades
	if !u.Upgraded() {
		return
	}
	pause := time.Since(u.state.GetFrozenTime().AsTime())
	d.upgrades.done(pause)
	d.opts.Logger.Info("upgraded", "previous", u.state.GetProgramVersion(), "version", d.opts.Version,
		slog.Duration("pause", pause), "running", d.sessions.Totals().Running)
	go u.state.ReapWorkers()
}

// checkTaken lets tests make an upgrade fail in the new program.
func (u *Upgrades) checkTaken() error {
	if !u.Upgraded() {
		return nil
	}
	return handover.Fail(handover.Restore)
}
