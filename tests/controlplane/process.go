package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopGrace is how long a component may take to end before it is killed. A kube-apiserver
// that lost its etcd, or has open watches, would take a minute.
const stopGrace = time.Second

// process is one running component.
type process struct {
	name     string
	cmd      *exec.Cmd
	logPath  string
	stopping bool          // set before it is ended on purpose
	done     chan struct{} // closed when it has ended
	err      error         // how it ended; read only after done
}

// start runs this same binary under the name of a component; its output goes to a log file
// in dir, and the process is sent to exited when it ends.
func start(name, dir string, args []string, exited chan<- *process) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this binary: %w", err)
	}
	logPath := filepath.Join(dir, name+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log of %s: %w", name, err)
	}
	defer log.Close()

	cmd := &exec.Cmd{Path: self, Args: append([]string{name}, args...), Dir: dir, Stdout: log, Stderr: log}
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, logPath: logPath, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
		exited <- p
	}()
	return p, nil
}

// kill ends the process at once, as a crash would, and waits for it.
func (p *process) kill() {
	p.stopping = true
	// An error only says that it has ended already.
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks all the processes to end together and kills those that are left after stopGrace.
func stop(processes []*process) {
	for _, p := range processes {
		p.stopping = true
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	grace := time.After(stopGrace)
	for _, p := range processes {
		select {
		case <-p.done:
			continue
		case <-grace:
		}
		break
	}
	for _, p := range processes {
		p.kill()
	}
}

// logTail is the last lines of the log, to be shown when the process ended by itself.
func (p *process) logTail() []byte {
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-15):], []byte("\n"))
}
