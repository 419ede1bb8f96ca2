package executor

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Required claims of the signed token of an agent identity, and the default URLs
// of its authority.
const (
	identityIssuer   = "https://chatgpt.com/codex-backend/agent-identity"
	identityAudience = "codex-app-server"
	identitySkew     = time.Minute
	defaultKeysURL   = "https://chatgpt.com/backend-api"
	defaultTasksURL  = "https://auth.openai.com/api/accounts"
)

var (
	validRuntimeID = regexp.MustCompile(`^[A-Za-z0-9_-]([A-Za-z0-9_.-]*[A-Za-z0-9_-])?$`)
	errNotAHeader  = errors.New("not valid in a header")
)

// identity has the credentials of an agent: a signed token, which is verified
// once, a task, which is registered once, and an assertion for each registration.
// It is for one goroutine.
type identity struct {
	token   string
	client  *client
	keysURL string // base URL for the keys of signed tokens
	taskURL string // base URL for tasks
	now     func() time.Time

	agent   *agent // set once the token is verified
	task    string // set once a task is registered
	newTask bool   // the task was registered for the current registration
}

// agent has the claims of the signed token.
type agent struct {
	runtimeID string
	key       ed25519.PrivateKey
	account   string
	fedramp   bool
	expires   time.Time
}

func newIdentity(getenv func(string) string) (*identity, error) {
	token := strings.TrimSpace(getenv(AccessTokenVariable))
	if token == "" {
		return nil, &CredentialsError{Problem: AccessTokenVariable + " is required when --use-agent-identity-auth is set", permanent: true}
	}
	parts := strings.Split(token, ".")
	if !isToken([]byte(token)) || len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return nil, &CredentialsError{Problem: "invalid agent identity JWT format", Fix: AccessTokenVariable + " must be a single signed token", permanent: true}
	}
	keys, err := authorityURL(KeysVariable, getenv(KeysVariable), defaultKeysURL)
	if err != nil {
		return nil, err
	}
	// Setting one of the two URLs sets both.
	tasks, err := authorityURL(TasksVariable, getenv(TasksVariable), cmp.Or(strings.TrimRight(strings.TrimSpace(getenv(KeysVariable)), "/"), defaultTasksURL))
	if err != nil {
		return nil, err
	}
	return &identity{token: token, client: newClient(serviceAuthority, DefaultTimeout, nil), keysURL: keys, taskURL: tasks, now: time.Now}, nil
}

// authorityURL returns the base URL in a variable, or the standard one.
func authorityURL(variable, value, standard string) (string, error) {
	base := cmp.Or(strings.TrimRight(strings.TrimSpace(value), "/"), standard)
	if _, problem := urlProblem(base, "https", "http", false); problem != "" {
		return "", &CredentialsError{Problem: variable + " " + problem, Fix: "write it as https://HOST[:PORT][/PATH], or http:// on loopback", permanent: true}
	}
	return base, nil
}

// String implements Credentials.
func (i *identity) String() string { return "the agent identity in " + AccessTokenVariable }

// GoString keeps the token out of %#v.
func (i *identity) GoString() string { return i.String() }

// Header implements Credentials.
func (i *identity) Header(ctx context.Context) (http.Header, error) {
	if i.agent == nil {
		agent, err := i.verify(ctx)
		if err != nil {
			return nil, err
		}
		i.agent = agent
	}
	if !i.now().Before(i.agent.expires.Add(identitySkew)) {
		return nil, &CredentialsError{Problem: fmt.Sprintf("the agent identity in %s expired at %v", AccessTokenVariable, i.agent.expires.UTC()),
			Fix: "start the executor with a new one", permanent: true}
	}
	i.newTask = i.task == ""
	if i.newTask {
		task, err := i.registerTask(ctx)
		if err != nil {
			return nil, err
		}
		i.task = task
	}
	header := http.Header{"Authorization": {"AgentAssertion " + i.agent.assertion(i.task, timestamp(i.now()))}}
	return header, addAccount(header, i.agent.account, i.agent.fedramp)
}

// renew implements renewer: a task may expire before its agent.
func (i *identity) renew() bool {
	i.task = ""
	return !i.newTask
}

// verify fetches the keys of the authority, verifies the token and returns its
// claims.
func (i *identity) verify(ctx context.Context) (*agent, error) {
	path := "/agent-identities/jwks"
	if strings.Contains(i.keysURL, "/backend-api") {
		path = "/wham" + path
	}
	set, err := i.client.do(ctx, http.MethodGet, i.keysURL+path, http.Header{"Accept": {"application/json"}}, nil)
	if err != nil {
		return nil, err
	}
	claims := jwt.MapClaims{}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodRS256.Alg(), jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithIssuer(identityIssuer), jwt.WithAudience(identityAudience), jwt.WithExpirationRequired(),
		jwt.WithLeeway(identitySkew), jwt.WithStrictDecoding(), jwt.WithTimeFunc(i.now),
	)
	if _, err := parser.ParseWithClaims(i.token, claims, keyOf(set)); err != nil {
		return nil, &CredentialsError{Problem: "the agent identity in " + AccessTokenVariable + " is invalid", Err: err}
	}
	agent, err := newAgent(claims)
	if err != nil {
		return nil, &CredentialsError{Problem: "the agent identity in " + AccessTokenVariable + " is unusable", Err: err, permanent: true}
	}
	return agent, nil
}

// newAgent parses the claims of a verified token. Errors do not contain the key.
func newAgent(claims jwt.MapClaims) (*agent, error) {
	text := func(name string) string { text, _ := claims[name].(string); return text }
	runtimeID := text("agent_runtime_id")
	if len(runtimeID) > MaxIDBytes || !validRuntimeID.MatchString(runtimeID) {
		return nil, errors.New("agent_runtime_id is missing or not valid in a path")
	}
	der, err := base64.StdEncoding.DecodeString(text("agent_private_key"))
	if err != nil {
		return nil, errors.New("agent_private_key is not base64")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	key, isEd25519 := parsed.(ed25519.PrivateKey)
	if err != nil || !isEd25519 {
		return nil, errors.New("agent_private_key is not an Ed25519 key in PKCS#8")
	}
	account := text("account_id")
	if !isToken([]byte(account)) {
		return nil, errors.New("account_id is missing or not valid in a header")
	}
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil {
		return nil, errors.New("exp is missing")
	}
	fedramp, _ := claims["chatgpt_account_is_fedramp"].(bool)
	return &agent{runtimeID: runtimeID, key: key, account: account, fedramp: fedramp, expires: expires.Time}, nil
}
