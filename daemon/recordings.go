package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	handoverv1 "github.com/execwire/execwire/gen/go/execwire/handover/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/recorder"
	"github.com/execwire/execwire/internal/session"
)

// openRecorder returns what records terminals of principals.
func openRecorder(cfg config.Config, logger *slog.Logger) (*recorder.Recorder, error) {
	r, err := recorder.Open(recorder.Options{Directory: cfg.RecordingDirectory, FileBytes: int64(cfg.RecordingFileBytes),
		TotalBytes: int64(cfg.RecordingTotal), Failure: cfg.RecordingFailure, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("recording_directory: %w", err)
	}
	return r, nil
}

// handOverRecordings adds recordings to a state.
func handOverRecordings(recordings []recorder.State, state *handoverv1.State) {
	for _, s := range recordings {
		state.Recordings = append(state.Recordings, &handoverv1.Recording{
			Principal: s.Subject.Principal, Session: s.Subject.Session, Process: s.Subject.Process, Program: s.Subject.Program,
			Rows: uint32(s.Subject.Size.Rows), Columns: uint32(s.Subject.Size.Cols), BeganTime: timestamppb.New(s.Began),
			File: s.File, Bytes: s.Bytes, Part: int64(s.Part), BaseTime: timestamppb.New(s.Base), Last: int64(s.Last), Rest: s.Rest, Seq: s.Seq,
		})
	}
}

// recordings returns the recordings of the program before.
func (u *Upgrades) recordings() (states []recorder.State) {
	if !u.Upgraded() {
		return nil
	}
	for _, m := range u.state.GetRecordings() {
		states = append(states, recorder.State{
			Subject: recorder.Subject{Principal: m.GetPrincipal(), Session: m.GetSession(), Process: m.GetProcess(), Program: m.GetProgram(),
				Size: process.WindowSize{Rows: uint16(m.GetRows()), Cols: uint16(m.GetColumns())}},
			Began: m.GetBeganTime().AsTime(), File: m.GetFile(), Bytes: m.GetBytes(), Part: int(m.GetPart()), Base: m.GetBaseTime().AsTime(),
			Last: time.Duration(m.GetLast()), Rest: m.GetRest(), Seq: m.GetSeq(),
		})
	}
	return states
}

// recorded returns a function that finds the process of a recording.
func recorded(sessions *session.Registry) func(recorder.Subject) (recorder.Process, error) {
	return func(of recorder.Subject) (recorder.Process, error) {
		for _, s := range sessions.All() {
			if s.ID() == of.Session && s.Principal() == of.Principal {
				return s.Process(of.Process)
			}
		}
		return nil, errors.New("its session is gone")
	}
}
