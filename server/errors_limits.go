package server

import (
	"cmp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/ports"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

// retryWhenFull is the retry delay for a limit that is used up by short-lived
// requests.
const retryWhenFull = time.Second

// quota is a limit as clients see it. Every translation to RESOURCE_EXHAUSTED has
// one; a test proves it.
type quota struct {
	// setting is the name in internal/config, or the name of another limit: a field
	// of the contract, or a limit of the system.
	setting string
	// unit is the unit of the limit. A limit in bytes is limit_bytes in the metadata,
	// any other is limit.
	unit string
	// fix says how a request stays within the limit; may be empty.
	fix string
	// permanent is set if repeating the request never helps: there is no RetryInfo.
	permanent bool
	// retry is the retry delay, if it is known; 0 is retryWhenFull.
	retry time.Duration
}

const bytesUnit = "bytes"

// limit says which limit was reached. most is its value; 0 is unknown.
func (f *failure) limit(q quota, most int64) *failure {
	description := "the limit is reached"
	if most > 0 {
		text := strconv.FormatInt(most, 10)
		description = strings.TrimSpace("at most " + text + " " + q.unit)
		if q.unit == bytesUnit {
			f.set("limit_bytes", text)
		} else {
			f.set("limit", text)
		}
	}
	if q.fix != "" {
		description += "; " + q.fix
	}
	f.set("setting", q.setting).with(&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
		{Subject: q.setting, Description: description}}})
	if !q.permanent {
		f.retry(cmp.Or(q.retry, retryWhenFull))
	}
	return f
}

// processQuotas are the limits of kinds of package process.
var processQuotas = map[process.Kind]quota{
	process.WriteTooLarge: {setting: "stdin_write_bytes", unit: bytesUnit, fix: "split the write", permanent: true},
	process.ResourceLimit: {}, // of the system
}

// sessionQuotas are the limits of kinds of package session.
var sessionQuotas = map[session.Kind]quota{
	session.StdinQueueFull:           {setting: "waiting stdin", unit: bytesUnit},
	session.TooManySessionsInAll:     {setting: "sessions_total", unit: "sessions"},
	session.TooManySessions:          {setting: "sessions_per_principal", unit: "sessions"},
	session.TooManyProcessesAttached: {setting: "max_processes", unit: "processes"},
	session.TooManyProcesses:         {setting: "processes_per_session", unit: "processes"},
	session.RetainedOutputFull:       {setting: "retained_output_bytes_total", unit: bytesUnit},
}

// fileQuotas are the limits of kinds of package fsops.
var fileQuotas = map[fsops.Kind]quota{
	fsops.TooLarge:            {setting: "read_file_bytes", unit: bytesUnit, fix: "use DownloadFile", permanent: true},
	fsops.TooManyUploads:      {setting: "uploads_per_principal", unit: "uploads"},
	fsops.TooManyWatches:      {setting: "watches_per_principal", unit: "watches"},
	fsops.TooManyAwaitedPaths: {setting: "awaited_paths_per_principal", unit: "paths"},
	fsops.TooManyHandles:      {setting: "file_handles_per_session", unit: "handles"},
	fsops.WatchUnavailable:    {setting: "watched_directories_per_watch", unit: "directories", permanent: true},
	fsops.NoSpace:             {}, // of the system
	fsops.Exhausted:           {}, // of the system
}

// httpQuotas are the limits of kinds of package httpclient.
var httpQuotas = map[httpclient.Kind]quota{
	httpclient.HeadTooLarge:    {setting: "http_head_bytes", unit: bytesUnit, permanent: true},
	httpclient.TooManyRequests: {setting: "http_requests_per_principal", unit: "requests"},
}

// portQuotas are the limits of kinds of package ports.
var portQuotas = map[ports.Kind]quota{
	ports.TooManyConnections: {setting: "port_connections_per_principal", unit: "connections"},
	ports.TooManyListeners:   {setting: "port_listeners_per_principal", unit: "listeners"},
	ports.ListenFailed:       {}, // of the system
}

// Limits without a kind of their own.
var (
	messageQuota = quota{setting: "message_bytes", unit: bytesUnit, fix: "split the message", permanent: true}
	readersQuota = quota{setting: "readers_per_process", unit: "readers"}
)

// processLimits are the system limits that a start can reach, by errno.
var processLimits = map[syscall.Errno]string{
	unix.EAGAIN: "pids.max, RLIMIT_NPROC",
	unix.EMFILE: "RLIMIT_NOFILE",
	unix.ENFILE: "fs.file-max",
	unix.ENOMEM: "memory",
	unix.ENOSPC: "kernel.pty.max, disk",
	unix.EUSERS: "user namespaces",
}

// fileLimits are the system limits that file calls can reach, by errno.
var fileLimits = map[syscall.Errno]string{
	unix.EMFILE: "RLIMIT_NOFILE",
	unix.ENFILE: "fs.file-max",
	unix.ENOMEM: "memory",
	unix.ENOSPC: "disk",
	unix.EDQUOT: "disk quota",
}

// watchLimits are the system limits that watches can reach, by errno.
var watchLimits = map[syscall.Errno]string{
	unix.EMFILE: "fs.inotify.max_user_instances",
	unix.ENOSPC: "fs.inotify.max_user_watches",
}

// systemQuota returns the quota of an errno. The limit may be temporary.
func systemQuota(names map[syscall.Errno]string, errno syscall.Errno) quota {
	return quota{setting: cmp.Or(names[errno], "system")}
}

// quotaOfFile returns the quota of a file error.
func quotaOfFile(err *fsops.Error) (q quota, ok bool) {
	q, ok = fileQuotas[err.Kind]
	switch {
	case err.Kind == fsops.WatchUnavailable && err.Limit == 0:
		q = systemQuota(watchLimits, err.Errno)
	case ok && q.setting == "":
		q = systemQuota(fileLimits, err.Errno)
	}
	return q, ok
}
