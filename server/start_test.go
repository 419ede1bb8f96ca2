package server_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// prepared returns a start request for a command that the caller has resolved.
func prepared(id, executable string, argv ...string) *execwirev1.StartProcessRequest {
	return &execwirev1.StartProcessRequest{
		ProcessId: id,
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Prepared{
			Prepared: &execwirev1.PreparedCommand{Executable: executable, Argv: argv, WorkingDirectory: "/"}}},
	}
}

func TestStart_DisabledCommandForm_Fails(t *testing.T) {
	for name, off := range map[string]struct{ direct, prepared bool }{
		"none": {}, "direct": {direct: true}, "prepared": {prepared: true}, "both": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(s *settings) { s.noDirect, s.noPrepared = off.direct, off.prepared })
			described, err := f.environ.GetEnvironment(f.ctx, &execwirev1.GetEnvironmentRequest{})
			if err != nil || described.GetDirectCommands() == off.direct || described.GetPreparedCommands() == off.prepared {
				t.Errorf("GetEnvironment reports direct %v, prepared %v: %v", described.GetDirectCommands(), described.GetPreparedCommands(), err)
			}
			for _, form := range []struct {
				name, setting string
				off           bool
				request       func(id string) *execwirev1.StartProcessRequest
			}{
				{"direct", "allow_direct_exec", off.direct, func(id string) *execwirev1.StartProcessRequest { return command(id, "true") }},
				{"prepared", "allow_prepared_exec", off.prepared, func(id string) *execwirev1.StartProcessRequest { return prepared(id, "/bin/true", "true") }},
			} {
				_, startErr := f.processes.StartProcess(f.ctx, form.request(form.name))
				stream, err := f.processes.RunProcess(f.ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := stream.Send(startMessage(form.request(form.name+" run"), nil)); err != nil {
					t.Fatal(err)
				}
				_, runErr := stream.Recv()
				for _, err := range []error{startErr, runErr} {
					if !form.off {
						if err != nil {
							t.Errorf("%s commands fail: %v", form.name, err)
						}
						continue
					}
					expectFailure(t, err, codes.PermissionDenied, execwirev1.ErrorReason_ERROR_REASON_COMMAND_FORM_DISABLED)
					if metadata := errorinfo.Of(err).GetMetadata(); metadata["form"] != form.name || metadata["setting"] != form.setting {
						t.Errorf("%s: the metadata is %v: %v", form.name, metadata, err)
					}
				}
			}
		})
	}
}
