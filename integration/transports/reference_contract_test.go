package transports

import (
	"encoding/json"
	"fmt"
	"strings"
)

// contract is the recorded part of the protocol that the reference implements. Nothing else is
// available.
type contract struct {
	name string
	// uris reports whether paths must be file: URIs; otherwise they must be absolute.
	uris bool
	// methods are the methods it has.
	methods map[string]shape
	// notifications are the notifications it sends, with their members.
	notifications map[string]members
	// deaths reports whether a signal is reported as an exit code.
	deaths bool
}

// shape is the form of a method.
type shape struct {
	params, result members
	// paths are parameters that must be paths.
	paths []string
	// required are parameters that must be present.
	required []string
}

// members are the known members of an object, each with its own known members; nil means all.
type members map[string]members

// known parses members: names, with nested ones in parentheses. A name with a star includes
// everything below it.
func known(text string) members {
	m, rest := readMembers(text)
	if rest != "" {
		panic("members end with " + rest)
	}
	return m
}

func readMembers(text string) (members, string) {
	m := members{}
	for {
		text = strings.TrimLeft(text, " ")
		end := strings.IndexAny(text, " ()")
		if end < 0 {
			end = len(text)
		}
		name, rest := text[:end], text[end:]
		if name != "" {
			m[name] = nil
		}
		switch {
		case rest == "":
			return m, ""
		case rest[0] == ')':
			return m, rest[1:]
		case rest[0] == '(':
			m[name], rest = readMembers(rest[1:])
		}
		text = rest
	}
}

// keep removes unknown members from objects and from those in lists.
func (m members) keep(value any) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, inner := range v {
			if below, is := m[name]; is {
				if below != nil {
					inner = below.keep(inner)
				}
				kept[name] = inner
			}
		}
		return kept
	case []any:
		for i := range v {
			v[i] = m.keep(v[i])
		}
	}
	return value
}

// What both versions have.
const (
	olderStart = "processId argv cwd env tty pipeStdin arg0 envPolicy"
	olderRead  = "chunks(seq stream chunk) nextSeq exited exitCode closed failure"
)

func olderContract() contract {
	return contract{
		name: "0.132.0",
		methods: map[string]shape{
			"initialize":         {params: known("clientName resumeSessionId"), result: known("sessionId")},
			"process/start":      {params: known(olderStart), result: known("processId"), required: []string{"processId", "argv", "cwd", "env", "tty"}, paths: []string{"cwd"}},
			"process/read":       {params: known("processId afterSeq maxBytes waitMs"), result: known(olderRead)},
			"process/write":      {params: known("processId chunk"), result: known("status")},
			"process/terminate":  {params: known("processId"), result: known("running")},
			"fs/readFile":        {params: known("path sandbox"), result: known("dataBase64"), paths: []string{"path"}},
			"fs/writeFile":       {params: known("path dataBase64 sandbox"), result: known(""), paths: []string{"path"}},
			"fs/createDirectory": {params: known("path recursive sandbox"), result: known(""), paths: []string{"path"}},
			"fs/getMetadata":     {params: known("path sandbox"), result: known("isDirectory isFile isSymlink createdAtMs modifiedAtMs"), paths: []string{"path"}},
			"fs/readDirectory":   {params: known("path sandbox"), result: known("entries(fileName isDirectory isFile)"), paths: []string{"path"}},
			"fs/remove":          {params: known("path recursive force sandbox"), result: known(""), paths: []string{"path"}},
			"fs/copy":            {params: known("sourcePath destinationPath recursive sandbox"), result: known(""), paths: []string{"sourcePath", "destinationPath"}, required: []string{"recursive"}},
			"http/request":       {params: known("method url requestId headers bodyBase64 timeoutMs streamResponse"), result: known("status headers bodyBase64")},
		},
		notifications: map[string]members{
			"process/output":         known("processId seq stream chunk"),
			"process/exited":         known("processId seq exitCode"),
			"process/closed":         known("processId seq"),
			"http/request/bodyDelta": known("requestId seq deltaBase64 done error"),
		},
	}
}

func newerContract() contract {
	c := olderContract()
	c.name, c.uris, c.deaths = "0.169.0", true, true
	change := func(method, params, result string, required ...string) {
		s := c.methods[method]
		s.params, s.result, s.required = known(params), known(result), append(s.required, required...)
		c.methods[method] = s
	}
	const info = "shell executorVersion providerId cwd userHomeDir platformOs prependPathDirs temporaryDirectories tempDir capabilities"
	change("initialize", "clientName resumeSessionId", "sessionId environmentInfo("+info+")")
	change("process/start", olderStart+" sandbox enforceManagedNetwork managedNetwork networkProxy shellSnapshot credentialProviders metadata", "processId sandboxType")
	change("process/read", "processId afterSeq maxBytes waitMs", olderRead+" sandboxDenied")
	change("process/write", "processId chunk writeId", "status", "writeId")
	change("process/signal", "processId signal", "")
	change("environment/info", "", info)
	change("environment/status", "", "status")
	change("fs/getMetadata", "path sandbox followSymlinks", "isDirectory isFile isSymlink size createdAtMs modifiedAtMs")
	change("fs/readFile", "path sandbox followSymlinks", "dataBase64")
	change("fs/writeFile", "path dataBase64 sandbox followSymlinks", "")
	change("fs/createDirectory", "path recursive sandbox followSymlinks", "")
	change("fs/remove", "path recursive force sandbox followSymlinks", "")
	c.methods["fs/canonicalize"] = shape{params: known("path sandbox"), result: known("path"), paths: []string{"path"}}
	c.methods["fs/open"] = shape{params: known("handleId path mode sandbox"), result: known("handleId"), paths: []string{"path"}}
	c.methods["fs/readBlock"] = shape{params: known("handleId offset len"), result: known("chunk eof")}
	c.methods["fs/writeBlock"] = shape{params: known("handleId offset chunk"), result: known("")}
	c.methods["fs/close"] = shape{params: known("handleId"), result: known("")}
	c.methods["fs/walk"] = shape{params: known("path options sandbox"), result: known("entries(path kind) errors truncated"), paths: []string{"path"}, required: []string{"options"}}
	c.methods["fs/watchMissing"] = shape{params: known("watchId missing present"), result: known("watching")}
	c.notifications["process/exited"] = known("processId seq exitCode sandboxDenied")
	c.notifications["fs/missingChanged"] = known("watchId")
	return c
}

// refusal returns why the reference rejects a request; nil if it does not.
type refusal struct {
	code    int
	message string
	// unforeseen reports whether clients have no reason to send it.
	unforeseen bool
}

// check validates a request, and removes what the reference ignores.
func (c *contract) check(method string, params map[string]any) *refusal {
	s, is := c.methods[method]
	if !is {
		return &refusal{-32601, fmt.Sprintf("exec-server stub does not implement `%s` yet", method), true}
	}
	for _, name := range s.required {
		if _, is := params[name]; !is {
			return &refusal{-32602, fmt.Sprintf("missing field `%s`", name), true}
		}
	}
	for _, name := range s.paths {
		path, is := params[name].(string)
		switch {
		case !is:
			return &refusal{-32602, "invalid type: null, expected path string", true}
		case c.uris && !strings.HasPrefix(path, "file:"):
			return &refusal{-32602, "invalid URI: relative URL without a base", false}
		case !c.uris && method == "process/start" && !strings.HasPrefix(path, "/"):
			return &refusal{-32603, "No such file or directory (os error 2)", false}
		case !c.uris && !strings.HasPrefix(path, "/"):
			return &refusal{-32602, "AbsolutePathBuf deserialized without a base path", false}
		}
	}
	if signal, is := params["signal"].(string); method == "process/signal" && (!is || signal != "interrupt") {
		return &refusal{-32602, fmt.Sprintf("unknown variant `%v`, expected `interrupt`", params["signal"]), true}
	}
	s.params.keepIn(params)
	return nil
}

// keepIn is keep for the parameters themselves.
func (m members) keepIn(params map[string]any) {
	for name := range params {
		if _, is := m[name]; !is {
			delete(params, name)
		}
	}
}

// answer reduces a result to what the reference returns.
func (c *contract) answer(method string, result any) any {
	result = c.methods[method].result.keep(result)
	object, is := result.(map[string]any)
	if !is {
		return result
	}
	if info, is := object["environmentInfo"].(map[string]any); is {
		info["executorVersion"] = c.name
	}
	if chunks, is := object["chunks"].([]any); is && !c.uris && len(chunks) > 0 {
		last, _ := chunks[len(chunks)-1].(map[string]any)["seq"].(json.Number).Int64()
		object["nextSeq"] = last + 1
	}
	c.reportDeath(object)
	return result
}

// reportDeath sets the exit code that the reference reports for processes killed by a signal.
func (c *contract) reportDeath(object map[string]any) {
	if code, is := object["exitCode"].(json.Number); is && !c.deaths {
		if n, err := code.Int64(); err == nil && n > 128 && n <= 128+64 {
			object["exitCode"] = -1
		}
	}
}
