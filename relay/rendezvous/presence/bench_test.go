package presence_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/relay/rendezvous"
	"github.com/execwire/execwire/relay/rendezvous/presence"
)

// BenchmarkRefusedRegistration measures a registration at a hub with the maximum
// of 10,000 executors, none of which may be evicted.
func BenchmarkRefusedRegistration(b *testing.B) {
	for name, o := range map[string]presence.Options{"memory": {}, "files": {Directory: b.TempDir()}} {
		b.Run(name, func(b *testing.B) {
			kept, err := presence.Open(b.Context(), o)
			if err != nil {
				b.Fatal(err)
			}
			hub, err := rendezvous.New(rendezvous.Config{
				Presence: kept,
				Limits:   rendezvous.Limits{ExecutorsPerPrincipal: rendezvous.DefaultExecutors},
				Authenticate: func(*http.Request) (auth.Member, error) {
					return auth.UnrestrictedMember(auth.Principal{Name: "fleet"}), nil
				},
			})
			if err != nil {
				b.Fatal(err)
			}
			defer hub.Close()
			register := func(i int) int {
				answer := httptest.NewRecorder()
				hub.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, fmt.Sprintf("/cloud/executor/e%d/register", i), nil))
				return answer.Code
			}
			for i := range rendezvous.DefaultExecutors {
				if code := register(i); code != http.StatusOK {
					b.Fatalf("registration %d was answered %d", i, code)
				}
			}
			i := rendezvous.DefaultExecutors
			for b.Loop() {
				if code := register(i); code != http.StatusTooManyRequests {
					b.Fatalf("a registration beyond the limit was answered %d", code)
				}
				i++
			}
		})
	}
}
