package server

import (
	"cmp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/httpclient"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
)

// retryWhenFull is when to retry what was refused because others of its kind, which
// end by themselves, have all that a limit allows.
const retryWhenFull = time.Second

// quota is a limit as clients see it. Every translation to RESOURCE_EXHAUSTED has
// one; a test proves it.
type quota struct {
	// setting is the setting of internal/config, or the name of a limit that is none:
	// a field of the contract, or a limit of the system.
	setting string
	// unit is what it counts. A limit in bytes is limit_bytes in the metadata, any other
	// is limit.
	unit string
	// advice says how the request stays within it; may be empty.
	advice string
	// fixed is the value of a limit that no setting changes.
	fixed int64
	// lasting is whether the same request is refused whenever it is repeated: it has no
	// RetryInfo.
	lasting bool
	// retry is when to retry, if that is known; 0 is retryWhenFull.
	retry time.Duration
}

const bytesUnit = "bytes"

// describe adds the limit to the metadata of an error and returns its details. most is
// the value of the limit; 0 is not known.
func (q quota) describe(most int64, metadata map[string]string) []protoadapt.MessageV1 {
	description := "the limit is reached"
	if most = cmp.Or(most, q.fixed); most > 0 {
		text := strconv.FormatInt(most, 10)
		description = strings.TrimSpace("at most " + text + " " + q.unit)
		if q.unit == bytesUnit {
			metadata["limit_bytes"] = text
		} else {
			metadata["limit"] = text
		}
	}
	if q.advice != "" {
		description += "; " + q.advice
	}
	metadata["setting"] = q.setting
	details := []protoadapt.MessageV1{&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
		{Subject: q.setting, Description: description}}}}
	if !q.lasting {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(cmp.Or(q.retry, retryWhenFull))})
	}
	return details
}

// withSetting is the text of an error with the name of the limit that was reached.
func withSetting(code codes.Code, metadata map[string]string, text string) string {
	setting := metadata["setting"]
	if code != codes.ResourceExhausted || setting == "" || strings.Contains(text, setting) {
		return text
	}
	return text + " (" + setting + ")"
}

// processQuotas are the limits that kinds of package process are about.
var processQuotas = map[process.Kind]quota{
	process.WriteTooLarge: {setting: "stdin_write_bytes", unit: bytesUnit, advice: "split the write", lasting: true},
	process.ResourceLimit: {}, // of the system
}

// sessionQuotas are the limits that kinds of package session are about.
var sessionQuotas = map[session.Kind]quota{
	session.StdinQueueFull:           {setting: "waiting stdin", unit: bytesUnit, fixed: session.MaxWaitingInput},
	session.TooManySessionsInAll:     {setting: "sessions_total", unit: "sessions"},
	session.TooManySessions:          {setting: "sessions_per_principal", unit: "sessions"},
	session.TooManyProcessesAttached: {setting: "max_processes", unit: "processes"},
	session.TooManyProcesses:         {setting: "processes_per_session", unit: "processes"},
	session.RetainedOutputFull:       {setting: "retained_output_bytes_total", unit: bytesUnit},
}

// fileQuotas are the limits that kinds of package fsops are about.
var fileQuotas = map[fsops.Kind]quota{
	fsops.TooLarge:            {setting: "read_file_bytes", unit: bytesUnit, advice: "use DownloadFile", lasting: true},
	fsops.TooManyUploads:      {setting: "uploads_per_principal", unit: "uploads"},
	fsops.TooManyWatches:      {setting: "watches_per_principal", unit: "watches"},
	fsops.TooManyAwaitedPaths: {setting: "awaited_paths_per_principal", unit: "paths"},
	fsops.WatchUnavailable:    {setting: "watched_directories_per_watch", unit: "directories", lasting: true},
	fsops.NoSpace:             {}, // of the system
	fsops.Exhausted:           {}, // of the system
}

// handleQuotas are the limits that kinds of errors about handles are about.
var handleQuotas = map[fsops.HandleKind]quota{
	fsops.TooManyHandles: {setting: "file_handles_per_session", unit: "handles"},
}

// httpQuotas are the limits that kinds of package httpclient are about.
var httpQuotas = map[httpclient.Kind]quota{
	httpclient.HeadTooLarge:    {setting: "http_head_bytes", unit: bytesUnit, lasting: true},
	httpclient.TooManyRequests: {setting: "http_requests_per_principal", unit: "requests"},
}

// Limits that no kind of an error is about.
var (
	messageQuota = quota{setting: "message_bytes", unit: bytesUnit, advice: "split the message", lasting: true}
	readersQuota = quota{setting: "readers_per_process", unit: "readers"}
)

// processLimits name the limits of the system that a start meets, by what it fails with.
var processLimits = map[syscall.Errno]string{
	unix.EAGAIN: "pids.max, RLIMIT_NPROC",
	unix.EMFILE: "RLIMIT_NOFILE",
	unix.ENFILE: "fs.file-max",
	unix.ENOMEM: "memory",
	unix.ENOSPC: "kernel.pty.max, disk",
	unix.EUSERS: "user namespaces",
}

// fileLimits name those that calls about files meet.
var fileLimits = map[syscall.Errno]string{
	unix.EMFILE: "RLIMIT_NOFILE",
	unix.ENFILE: "fs.file-max",
	unix.ENOMEM: "memory",
	unix.ENOSPC: "disk",
	unix.EDQUOT: "disk quota",
}

// watchLimits name those that watches meet.
var watchLimits = map[syscall.Errno]string{
	unix.EMFILE: "fs.inotify.max_user_instances",
	unix.ENOSPC: "fs.inotify.max_user_watches",
}

// systemQuota is the limit of the system that an error number is about. It may pass.
func systemQuota(names map[syscall.Errno]string, errno syscall.Errno) quota {
	return quota{setting: cmp.Or(names[errno], "system")}
}

// fileQuota is the limit that an error about files is about.
func fileQuota(err *fsops.Error) (q quota, ok bool) {
	q, ok = fileQuotas[err.Kind]
	switch {
	case err.Kind == fsops.WatchUnavailable && err.Limit == 0:
		q = systemQuota(watchLimits, err.Errno)
	case ok && q.setting == "":
		q = systemQuota(fileLimits, err.Errno)
	}
	return q, ok
}
