package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// get returns a request for an HTTP request.
func get(url string) string {
	return `{"id":2,"method":"http/request","params":{"method":"GET","url":"` + url + `","requestId":"r"}}`
}

// The server makes HTTP requests, also for clients of a gateway, unless they are
// disabled.
func TestServe_HTTPRequests_UnlessDisabled(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }))
	t.Cleanup(web.Close)
	core := startServer(t, "ws://127.0.0.1:0", "grpc://127.0.0.1:0")
	gateway, _ := startGateway(t, nil, "--upstream", core.urls[1])
	off := startListening(t, command(t, "serve", "--listen", "ws://127.0.0.1:0", "--disable", "http"), 1).urls[0]
	gatewayOff, _ := startGateway(t, nil, "--upstream", core.urls[1], "--disable", "http")
	offByVariable, _ := startGateway(t, []string{"EXECWIRE_DISABLE=http"}, "--upstream", core.urls[1])
	for url, want := range map[string]string{
		core.urls[0]: `"bodyBase64":"aGVsbG8K"`, gateway: `"bodyBase64":"aGVsbG8K"`,
		off: "-32601", gatewayOff: "-32601", offByVariable: "-32601",
	} {
		conn, err := websocket(t, url, "")
		if err != nil {
			t.Fatal(err)
		}
		converse(t, conn, greeting+get(web.URL), `"id":2`, want)
	}
	conn, err := websocket(t, gateway, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range core.urls {
		_, address, _ := strings.Cut(url, "://")
		converse(t, conn, greeting+get("http://"+address+"/"), `"id":2`, "HTTP_ADDRESS_REFUSED")
	}
	for _, arguments := range [][]string{{"serve", "--disable", "files"}, {"gateway", "--upstream", core.urls[1], "--disable", "files"}} {
		if got := runCommand(t, command(t, arguments...)); got.code == 0 || !strings.Contains(got.errOut, `disable cannot be "files": what can be switched off is http`) {
			t.Errorf("%q: %+v", arguments, got)
		}
	}
}
