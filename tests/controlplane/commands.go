package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// reply is the answer to one command.
type reply struct {
	Command string         `json:"command"`
	OK      bool           `json:"ok"`
	Error   string         `json:"error,omitempty"`
	PIDs    map[string]int `json:"pids,omitempty"`
}

// readCommands passes on the lines of input and closes the channel at its end.
func readCommands(input io.Reader) <-chan string {
	commands := make(chan string)
	go func() {
		defer close(commands)
		lines := bufio.NewScanner(input)
		for lines.Scan() {
			if word := strings.TrimSpace(lines.Text()); word != "" {
				commands <- word
			}
		}
	}()
	return commands
}

// answer carries out one command. It runs on the main goroutine: commands follow each other.
func (p *plane) answer(command string) reply {
	var err error
	switch command {
	case "stop-apiserver":
		err = p.stopApiserver()
	case "start-apiserver":
		err = p.startApiserver()
	case "compact":
		err = p.compact()
	default:
		err = fmt.Errorf("unknown command; there are stop-apiserver, start-apiserver, compact")
	}
	r := reply{Command: command, OK: err == nil, PIDs: p.pids()}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}
