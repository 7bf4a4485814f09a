//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// inGroup lets command be interrupted together with the processes that it starts: go test alone would leave the tests
// running.
func inGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
}
