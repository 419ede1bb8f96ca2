package daemon_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/errorinfo"
)

// fetch makes the daemon send a request, and returns the reason if it fails.
func (o *opened) fetch(url string) string {
	o.t.Helper()
	stream, err := execwirev1.NewHttpServiceClient(o.daemon.Conn()).Fetch(o.ctx, &execwirev1.FetchRequest{Method: "GET", Url: url})
	for err == nil {
		_, err = stream.Recv()
	}
	if err == io.EOF {
		return ""
	}
	return errorinfo.Of(err).GetReason()
}

// Requests of this server come from loopback, where its own listeners may need no
// authentication.
func TestFetch_OwnListeners_IsRefused(t *testing.T) {
	o := open(t, func(c *config.Config) { c.Listen = []string{"ws://127.0.0.1:0", "grpc://127.0.0.1:0"} })
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(web.Close)
	if got := o.fetch(web.URL); got != "" {
		t.Errorf("another server of this host: %s", got)
	}
	for _, url := range o.urls {
		_, address, _ := strings.Cut(url, "://")
		for _, host := range []string{"127.0.0.1", "127.0.0.9", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"} {
			asked := "http://" + strings.Replace(address, "127.0.0.1", host, 1) + "/readyz"
			if got := o.fetch(asked); got != "HTTP_ADDRESS_REFUSED" {
				t.Errorf("%s: %q, want it refused", asked, got)
			}
		}
		to := httptest.NewServer(http.RedirectHandler("http://"+address+"/readyz", http.StatusFound))
		t.Cleanup(to.Close)
		if got := o.fetch(to.URL); got != "HTTP_ADDRESS_REFUSED" {
			t.Errorf("a redirect to %s: %q, want it refused", url, got)
		}
	}
}

func TestFetch_Disabled_Fails(t *testing.T) {
	o := open(t, func(c *config.Config) { c.Disable = []string{config.DisableHTTP} })
	if got := o.fetch("http://127.0.0.1:1/"); got != "HTTP_DISABLED" {
		t.Errorf("a request fails with %q", got)
	}
}
