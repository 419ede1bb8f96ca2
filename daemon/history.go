package daemon

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/history"
	"github.com/execwire/execwire/internal/osuser"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

// processHistory keeps the records of detached processes in state_directory. The nil
// *processHistory keeps none.
type processHistory struct {
	store   *history.Store
	records []history.Named // of the server before
	logger  *slog.Logger
}

// Sizes of what a record has of a process.
const (
	recordedEnds = 1 << 10  // of the head and the tail of each stream
	recordedArgv = 16 << 10 // of all arguments
)

// openHistory opens the records, if there is a directory for them.
func openHistory(cfg config.Config, logger *slog.Logger) (*processHistory, error) {
	if cfg.StateDirectory == "" {
		return nil, nil
	}
	store, records, err := history.Open(historyDirectory(cfg), int(cfg.RecordedProcesses), logger)
	if err != nil {
		return nil, historyError(cfg, err)
	}
	return &processHistory{store: store, records: records, logger: logger}, nil
}

// checkHistory returns an error if openHistory would fail once this program has replaced that which uses
// the directory.
func checkHistory(cfg config.Config) error {
	if cfg.StateDirectory == "" {
		return nil
	}
	if err := history.Check(historyDirectory(cfg)); err != nil {
		return historyError(cfg, err)
	}
	return nil
}

func historyDirectory(cfg config.Config) string {
	return filepath.Join(cfg.StateDirectory, "processes")
}

func historyError(cfg config.Config, err error) error {
	return &config.Error{Setting: "state_directory", Problem: fmt.Sprintf("is %q, which cannot be used: %v", cfg.StateDirectory, err),
		Fix: "name a directory that the user of the server can write"}
}

func (h *processHistory) close() {
	if h != nil {
		_ = h.store.Close()
	}
}

// hook makes the sessions keep the records.
func (h *processHistory) hook(cfg session.Config) session.Config {
	if h == nil {
		return cfg
	}
	cfg.OnRecord = func(p *session.Process) {
		if err := h.store.Put(recordName(p.Principal(), p.ID(), p.StartedAt()), recordOf(p)); err != nil {
			h.logger.Error("cannot write the record of a detached process: it is missing after a restart", "process", p.ID(), "error", err)
		}
	}
	cfg.OnForgotten = func(p *session.Process) { h.remove(recordName(p.Principal(), p.ID(), p.StartedAt())) }
	return cfg
}

func (h *processHistory) remove(name string) {
	if err := h.store.Remove(name); err != nil {
		h.logger.Warn("cannot remove the record of a process", "error", err)
	}
}

// recordName returns the name of the record of a process, which no other process has.
func recordName(principal, id string, startedAt time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", principal, id, startedAt.UnixNano()))
	return hex.EncodeToString(sum[:16])
}

// recordOf returns what is known of a process.
func recordOf(p *session.Process) *history.Record {
	spec, digest := p.Spec(), p.Digest()
	record := &history.Record{
		Principal: p.Principal(), ID: p.ID(), Digest: digest[:], Argv: cutArguments(spec.Argv), Executable: spec.Executable, Cwd: spec.Cwd,
		Labels: spec.Labels, Keep: p.Keep(), PID: p.PID(), StartedAt: p.StartedAt().Round(0),
	}
	if spec.User != nil {
		record.User = spec.User.String()
	}
	if spec.Terminal != nil {
		size := p.WindowSize()
		record.Rows, record.Columns = size.Rows, size.Cols
	}
	closedAt := p.ClosedAt()
	if closedAt.IsZero() {
		return record
	}
	exit, _ := p.Exit()
	record.Exit = &history.Exit{
		Code: exit.Code, Signal: int(exit.Signal), Cause: exit.Cause.String(), UserTime: exit.UserTime, SystemTime: exit.SystemTime,
		WallTime: exit.WallTime, MaxRSSBytes: exit.MaxRSSBytes, ExitedAt: exit.ExitedAt.Round(0), ClosedAt: closedAt.Round(0), SandboxDenied: exit.SandboxDenied,
	}
	stats := p.Log().Stats()
	record.LastSeq = stats.LastSeq
	for _, stream := range []eventlog.Stream{eventlog.Stdout, eventlog.Stderr, eventlog.Terminal} {
		if total := stats.Totals[stream]; total > 0 {
			head := p.Log().Snapshot(stream).Head
			record.Streams = append(record.Streams, history.Stream{ID: uint8(stream), Total: total,
				Head: head[:min(len(head), recordedEnds)], Tail: p.Log().Tail(stream, recordedEnds)})
		}
	}
	return record
}

// cutArguments returns arguments up to the size that a record may have.
func cutArguments(argv []string) []string {
	left := recordedArgv
	for i, arg := range argv {
		if left -= len(arg) + 8; left < 0 {
			return append(slices.Clone(argv[:i]), "…")
		}
	}
	return argv
}

// recover adds the records of the server before, unless that was an upgrade, in which the
// processes themselves go on. Of two with the same id the older one was replaced. One that cannot
// be added keeps its file: it may be of a newer program, or there is no space for it.
func (h *processHistory) recover(supervisor *process.Supervisor, sessions *session.Registry, cfg config.Config, upgraded bool) {
	if h == nil {
		return
	}
	defer func() { h.records = nil }()
	if upgraded {
		return
	}
	retention := func(r *history.Record) time.Duration {
		return max(cmp.Or(r.Keep, time.Duration(cfg.UnseenRetention)), time.Duration(cfg.ClosedRetention))
	}
	latest := make(map[[2]string]string) // names by principal and id
	for _, record := range h.records {
		latest[[2]string{record.Principal, record.ID}] = record.Name
	}
	restarted := 0
	for _, record := range h.records {
		ended := record.Exit != nil
		if !ended {
			now := time.Now().Round(0)
			record.Exit = &history.Exit{Cause: process.CauseServerRestarted.String(), ExitedAt: now, ClosedAt: now, WallTime: max(0, now.Sub(record.StartedAt))}
			record.LastSeq = 2
			restarted++
		}
		if time.Since(record.Exit.ClosedAt) > retention(record.Record) || latest[[2]string{record.Principal, record.ID}] != record.Name {
			h.remove(record.Name)
			continue
		}
		if !ended {
			if err := h.store.Put(record.Name, record.Record); err != nil {
				h.logger.Warn("cannot write the record of a process", "process", record.ID, "error", err)
			}
		}
		if err := recoverRecord(supervisor, sessions, record.Record); err != nil {
			h.logger.Warn("a record of the server before is not used, and its file stays until its retention is over: a later server may use it",
				"process", record.ID, "file", record.Name, "error", err)
		}
	}
	if len(h.records) > 0 {
		h.logger.Info("there are records of detached processes of the server before", "records", len(h.records), "ended_by_restart", restarted)
	}
}

// recoverRecord adds a record.
func recoverRecord(supervisor *process.Supervisor, sessions *session.Registry, record *history.Record) error {
	cause, ok := process.CauseOf(record.Exit.Cause)
	if !ok {
		return fmt.Errorf("its cause %q is unknown", record.Exit.Cause)
	}
	spec := process.Spec{Argv: record.Argv, Executable: record.Executable, Cwd: record.Cwd, Labels: record.Labels, User: recordedUser(record.User),
		Output: eventlog.Limits{SnapshotBytes: recordedEnds}}
	if record.Rows != 0 {
		spec.Terminal = &process.WindowSize{Rows: record.Rows, Cols: record.Columns}
	}
	state := recordedLog(record, spec.Output)
	exit := process.ExitRecord{
		Code: record.Exit.Code, Signal: syscall.Signal(record.Exit.Signal), Cause: cause, UserTime: record.Exit.UserTime, SystemTime: record.Exit.SystemTime,
		WallTime: record.Exit.WallTime, MaxRSSBytes: record.Exit.MaxRSSBytes, ExitedAt: record.Exit.ExitedAt, SandboxDenied: record.Exit.SandboxDenied,
	}
	p, err := supervisor.Recover(spec, record.PID, record.StartedAt, exit, state)
	if err != nil {
		return err
	}
	var digest session.Digest
	copy(digest[:], record.Digest)
	_, err = sessions.Recover(session.Recovered{Principal: record.Principal, ID: record.ID, Digest: digest, Keep: record.Keep,
		ClosedAt: record.Exit.ClosedAt, Process: p})
	return err
}

// recordedLog returns the log of a record: the end of each stream as one event, or all of a stream of
// which nothing is missing, and the end of the process. If nothing is missing of any, it begins at 1.
func recordedLog(record *history.Record, limits eventlog.Limits) *eventlog.State {
	state, missing := &eventlog.State{Limits: limits}, false
	for _, stream := range record.Streams {
		data := stream.Tail
		if all := uint64(len(stream.Head) + len(stream.Tail)); stream.Total <= all {
			data = append(slices.Clone(stream.Head), stream.Tail[all-stream.Total:]...)
		}
		evicted := stream.Total - uint64(len(data))
		missing = missing || evicted > 0
		id := eventlog.Stream(stream.ID)
		state.Streams = append(state.Streams, eventlog.StreamState{Stream: id, Total: stream.Total, Head: stream.Head[:min(evicted, uint64(len(stream.Head)))]})
		state.Events = append(state.Events, eventlog.Event{Kind: eventlog.Output, Stream: id, Offset: evicted, UnixNano: record.Exit.ExitedAt.UnixNano(), Data: data})
	}
	state.Events = append(state.Events, eventlog.Event{Kind: eventlog.Exited}, eventlog.Event{Kind: eventlog.Closed})
	seq := uint64(1)
	if n := uint64(len(state.Events)); missing && record.LastSeq > n {
		seq = record.LastSeq - n + 1
	}
	for i := range state.Events {
		state.Events[i].Seq = seq + uint64(i)
	}
	return state
}

// recordedUser returns the user of a process that named one, for its name.
func recordedUser(text string) *osuser.User {
	if text == "" {
		return nil
	}
	user, err := osuser.Lookup(text)
	if err != nil {
		user = osuser.User{Name: text}
	}
	return &user
}
