package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// plane is one control plane: its folder, ports, users and running components.
type plane struct {
	options  options
	files    files
	keepDir  bool
	etcdPort int
	peerPort int
	apiPort  int
	tokens   map[string]string
	running  map[string]*process
	exited   chan *process
	http     *http.Client
}

// description is the line printed when everything is ready.
type description struct {
	Version    string            `json:"version"`
	Server     string            `json:"server"`
	Kubeconfig string            `json:"kubeconfig"`
	AuditLog   string            `json:"audit_log"`
	Dir        string            `json:"dir"`
	PIDs       map[string]int    `json:"pids"`
	Tokens     map[string]string `json:"tokens"`
}

func newPlane(o options) (*plane, error) {
	p := &plane{options: o, running: map[string]*process{}, exited: make(chan *process, 8)}
	// Server and certificate are ours and on loopback; readiness needs no proof of identity.
	p.http = &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	for _, port := range []*int{&p.etcdPort, &p.peerPort, &p.apiPort} {
		var err error
		if *port, err = freePort(p.etcdPort, p.peerPort); err != nil {
			return nil, err
		}
	}
	if o.dir != "" {
		dir, err := filepath.Abs(o.dir)
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		p.keepDir = true
		p.files.dir = dir
	} else {
		dir, err := os.MkdirTemp("", "gpudeck-controlplane-")
		if err != nil {
			return nil, err
		}
		p.files.dir = dir
	}
	tokens, err := p.files.write(p.server())
	if err != nil {
		p.end()
		return nil, err
	}
	p.tokens = tokens
	return p, nil
}

// freePort finds a loopback port below the range from which the kernel takes the source ports
// of connections: while kube-apiserver is stopped nobody else may get its port.
func freePort(taken ...int) (int, error) {
	for range 100 {
		port := 18000 + rand.IntN(14000)
		for _, other := range taken {
			if port == other {
				port = 0
			}
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if port == 0 || err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("no free port found on 127.0.0.1 between 18000 and 31999")
}

func (p *plane) server() string  { return fmt.Sprintf("https://127.0.0.1:%d", p.apiPort) }
func (p *plane) etcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", p.etcdPort) }

func (p *plane) etcdArgs() []string {
	peer := fmt.Sprintf("http://127.0.0.1:%d", p.peerPort)
	return []string{
		"--data-dir", p.files.etcdData(),
		"--listen-client-urls", p.etcdURL(), "--advertise-client-urls", p.etcdURL(),
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default=" + peer,
		"--unsafe-no-fsync",
		// As kubeadm sets it: a quiet resource's bookmarks keep up with the others' changes.
		"--watch-progress-notify-interval", "5s",
		"--log-level", "warn",
	}
}

func (p *plane) apiserverArgs() []string {
	args := []string{
		"--etcd-servers", p.etcdURL(),
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(p.apiPort),
		// A machine without a default route has no other address to advertise, and nothing
		// uses the endpoints of the kubernetes Service.
		"--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none",
		"--tls-cert-file", p.files.certificate(), "--tls-private-key-file", p.files.certificateKey(),
		"--token-auth-file", p.files.tokens(), "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", p.files.serviceAccountPub(),
		"--service-account-signing-key-file", p.files.serviceAccountKey(),
		"--service-cluster-ip-range", "10.0.0.0/24",
		// Pods can be made in a namespace without waiting for its service account.
		"--disable-admission-plugins", "ServiceAccount",
		"--audit-policy-file", p.files.auditPolicy(), "--audit-log-path", p.files.auditLog(),
		// In MB: one file, so that a reader sees every record.
		"--audit-log-maxsize", "100000",
	}
	if p.options.runtimeConfig != "" {
		args = append(args, "--runtime-config", p.options.runtimeConfig)
	}
	return args
}

func (p *plane) schedulerArgs() []string {
	return []string{"--config", p.files.schedulerConfig(), "--secure-port", "0"}
}

func (p *plane) controllerManagerArgs() []string {
	return []string{
		"--kubeconfig", p.files.kubeconfig(controllerManagerName),
		"--leader-elect=false", "--secure-port", "0",
		"--service-account-private-key-file", p.files.serviceAccountKey(),
		"--kube-api-qps", "500", "--kube-api-burst", "1000",
	}
}

func (p *plane) start(name string, args []string) error {
	if name != etcdName && p.options.featureGates != "" {
		args = append(args, "--feature-gates", p.options.featureGates)
	}
	started, err := start(name, p.files.dir, append(args, *p.options.extra[name]...), p.exited)
	if err != nil {
		return err
	}
	p.running[name] = started
	return nil
}

// startServers starts etcd and kube-apiserver, which retries until etcd serves, and reports on
// ready once requests are answered.
func (p *plane) startServers(ready chan<- error) error {
	if err := p.start(etcdName, p.etcdArgs()); err != nil {
		return err
	}
	if err := p.start(apiserverName, p.apiserverArgs()); err != nil {
		return err
	}
	go func() {
		err := p.awaitApiserver(nil)
		if err == nil {
			err = p.awaitDefaultNamespace()
		}
		ready <- err
	}()
	return nil
}

// startControllers starts the components that are clients of a ready kube-apiserver: the
// controller manager gives up when it finds none within ten seconds.
func (p *plane) startControllers() error {
	if p.options.scheduler {
		if err := p.start(schedulerName, p.schedulerArgs()); err != nil {
			return err
		}
	}
	if p.options.controllerManager {
		return p.start(controllerManagerName, p.controllerManagerArgs())
	}
	return nil
}

// awaitApiserver returns when kube-apiserver says that it is ready, or early when done closes.
func (p *plane) awaitApiserver(done <-chan struct{}) error {
	return p.await(done, apiserverName, p.server()+"/readyz")
}

// awaitDefaultNamespace returns when the namespace default exists; kube-apiserver makes it
// only after it is ready.
func (p *plane) awaitDefaultNamespace() error {
	return p.await(nil, "the namespace default", p.server()+"/api/v1/namespaces/default")
}

// await repeats a GET as admin until it succeeds.
func (p *plane) await(done <-chan struct{}, what, url string) error {
	deadline := time.Now().Add(p.options.readyWithin)
	var last error
	for time.Now().Before(deadline) {
		if _, last = p.call(http.MethodGet, url, nil); last == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("%s ended before it was ready", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s is not ready after %s: %w", what, p.options.readyWithin, last)
}

// call sends one request as admin and returns the body of a 200.
func (p *plane) call(method, url string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+p.tokens["admin"])
	request.Header.Set("User-Agent", "controlplane")
	response, err := p.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, response.Status, text)
	}
	return text, nil
}

// stopApiserver kills kube-apiserver; etcd and its data stay.
func (p *plane) stopApiserver() error {
	apiserver := p.running[apiserverName]
	if apiserver == nil {
		return fmt.Errorf("%s is stopped already", apiserverName)
	}
	apiserver.kill()
	delete(p.running, apiserverName)
	return nil
}

// startApiserver starts kube-apiserver again on its port and returns when it is ready.
func (p *plane) startApiserver() error {
	if p.running[apiserverName] != nil {
		return fmt.Errorf("%s runs already", apiserverName)
	}
	if err := p.start(apiserverName, p.apiserverArgs()); err != nil {
		return err
	}
	return p.awaitApiserver(p.running[apiserverName].done)
}

// compact drops all of etcd's history before the current revision.
func (p *plane) compact() error {
	text, err := p.call(http.MethodPost, p.etcdURL()+"/v3/maintenance/status", []byte("{}"))
	if err != nil {
		return err
	}
	var status struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("cannot read the status of etcd: %w", err)
	}
	request := fmt.Sprintf(`{"revision": %q, "physical": true}`, status.Header.Revision)
	_, err = p.call(http.MethodPost, p.etcdURL()+"/v3/kv/compaction", []byte(request))
	return err
}

func (p *plane) pids() map[string]int {
	pids := map[string]int{}
	for name, running := range p.running {
		pids[name] = running.cmd.Process.Pid
	}
	return pids
}

func (p *plane) describe() description {
	tokens := map[string]string{}
	for _, u := range testUsers {
		tokens[u.name] = p.tokens[u.name]
	}
	return description{
		Version:    version(),
		Server:     p.server(),
		Kubeconfig: p.files.kubeconfig("clients"),
		AuditLog:   p.files.auditLog(),
		Dir:        p.files.dir,
		PIDs:       p.pids(),
		Tokens:     tokens,
	}
}

// end stops every component and removes the folder, unless it was asked for by --dir.
func (p *plane) end() {
	var all []*process
	for _, running := range p.running {
		all = append(all, running)
	}
	stop(all)
	if !p.keepDir {
		os.RemoveAll(p.files.dir)
	}
}
