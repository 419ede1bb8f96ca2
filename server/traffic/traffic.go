// Package traffic counts the bytes that messages of the contract carry.
package traffic

import (
	"sync/atomic"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Bytes counts bytes. All fields and methods may be used concurrently.
type Bytes struct {
	// Stdout, Stderr and Terminal are output of processes, and Stdin is input.
	Stdout, Stderr, Terminal, Stdin atomic.Int64
	// Uploaded and Downloaded are contents of files.
	Uploaded, Downloaded atomic.Int64
}

// Sent counts a message to a client: at most one addition for each stream.
func (b *Bytes) Sent(message any) {
	switch m := message.(type) {
	case *execwirev1.RunProcessResponse:
		b.output(m.GetEvents().GetEvents())
	case *execwirev1.OwnProcessResponse:
		b.output(m.GetEvents().GetEvents())
	case *execwirev1.AttachSessionResponse:
		b.output(m.GetEvents().GetEvents())
	case *execwirev1.WatchProcessResponse:
		b.output(m.GetEvents())
	case *execwirev1.ReadOutputResponse:
		b.output(m.GetEvents())
	case *execwirev1.DownloadFileResponse:
		b.Downloaded.Add(int64(len(m.GetData())))
	case *execwirev1.ReadFileResponse:
		b.Downloaded.Add(int64(len(m.GetData())))
	case *execwirev1.ReadBlockResponse:
		b.Downloaded.Add(int64(len(m.GetData())))
	}
}

// Received counts a message of a client.
func (b *Bytes) Received(message any) {
	switch m := message.(type) {
	case *execwirev1.RunProcessRequest:
		if data := m.GetStdin().GetData(); len(data) > 0 {
			b.Stdin.Add(int64(len(data)))
		}
	case *execwirev1.WriteStdinRequest:
		b.Stdin.Add(int64(len(m.GetData())))
	case *execwirev1.UploadFileRequest:
		b.Uploaded.Add(int64(len(m.GetData())))
	case *execwirev1.WriteFileRequest:
		b.Uploaded.Add(int64(len(m.GetData())))
	case *execwirev1.WriteBlockRequest:
		b.Uploaded.Add(int64(len(m.GetData())))
	}
}

func (b *Bytes) output(events []*execwirev1.ProcessEvent) {
	var stdout, stderr, terminal int
	for _, e := range events {
		switch output := e.GetOutput(); output.GetStream() {
		case execwirev1.OutputStream_OUTPUT_STREAM_STDOUT:
			stdout += len(output.GetData())
		case execwirev1.OutputStream_OUTPUT_STREAM_STDERR:
			stderr += len(output.GetData())
		case execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL:
			terminal += len(output.GetData())
		}
	}
	if stdout > 0 {
		b.Stdout.Add(int64(stdout))
	}
	if stderr > 0 {
		b.Stderr.Add(int64(stderr))
	}
	if terminal > 0 {
		b.Terminal.Add(int64(terminal))
	}
}
