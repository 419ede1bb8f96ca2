package daemon_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
)

// A drain does not wait for streams of reflection and health: the former end when it
// begins, the latter after it.
func TestDrain_ReflectionAndHealthStreams_End(t *testing.T) {
	s := serve(t, "unix://"+t.TempDir()+"/socket")
	conn := s.dial(0)
	s.startSleep(conn)
	asked, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := asked.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if answer, err := asked.Recv(); err != nil || len(answer.GetListServicesResponse().GetService()) == 0 {
		t.Errorf("got %v, %v", answer, err)
	}
	idle, err := reflectionv1alpha.NewServerReflectionClient(conn).ServerReflectionInfo(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	health, err := healthpb.NewHealthClient(conn).Watch(s.ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if answer, err := health.Recv(); err != nil || answer.GetStatus() != want {
			t.Errorf("health is %v, %v; want %v", answer, err, want)
		}
	}
	expect(healthpb.HealthCheckResponse_SERVING)

	s.stop(errors.New("stop"))
	expect(healthpb.HealthCheckResponse_NOT_SERVING)
	_, askedErr := asked.Recv()
	_, idleErr := idle.Recv()
	late, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, lateErr := late.Recv()
	for name, err := range map[string]error{"used": askedErr, "idle": idleErr, "late": lateErr} {
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the server stops") {
			t.Errorf("the %s stream of reflection ended with %v", name, err)
		}
	}
	if n := <-s.left; n != 1 {
		t.Errorf("the drain began with %d processes", n)
	}

	s.now(errors.New("now"))
	if _, err := health.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the server has stopped") {
		t.Errorf("the stream of health ended with %v", err)
	}
	if err := s.wait(); err != nil {
		t.Error(err)
	}
}
