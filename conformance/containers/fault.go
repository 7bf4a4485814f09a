package containers

import (
	"context"
	"errors"
	"fmt"

	"github.com/moby/moby/client"
)

// Pause freezes all processes of the server: connections stay open and nothing answers, as in a long GC pause, a
// suspended virtual machine or a full disk. Pausing twice is the same as pausing once.
func (s *Server) Pause(ctx context.Context) error {
	return s.fault("pause", func() error {
		if s.paused || s.killed {
			return nil
		}
		_, err := s.docker.ContainerPause(ctx, s.container.GetContainerID(), client.ContainerPauseOptions{})
		s.paused = err == nil
		return err
	})
}

// Resume ends [Server.Pause]. It does nothing on a server that is not paused.
func (s *Server) Resume(ctx context.Context) error {
	return s.fault("resume", func() error {
		if !s.paused {
			return nil
		}
		_, err := s.docker.ContainerUnpause(ctx, s.container.GetContainerID(), client.ContainerUnpauseOptions{})
		s.paused = err != nil
		return err
	})
}

// Kill ends all processes of the server with SIGKILL: nothing is saved, and connections are refused from then on. It
// returns when the server is gone.
func (s *Server) Kill(ctx context.Context) error {
	if err := s.Resume(ctx); err != nil {
		return err
	}
	return s.fault("kill", func() error {
		if s.killed {
			return nil
		}
		id := s.container.GetContainerID()
		// Asked before the kill, so that the end cannot be missed.
		gone := s.docker.ContainerWait(ctx, id, client.ContainerWaitOptions{})
		if _, err := s.docker.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			return err
		}
		select {
		case <-gone.Result:
		case err := <-gone.Error:
			return err
		}
		s.killed = true
		return nil
	})
}

// Restart starts a server that was killed, at the same addresses, and returns when it serves clients. It keeps what the
// server had written to its disk. A server that runs is killed first.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Kill(ctx); err != nil {
		return err
	}
	return s.fault("restart", func() error {
		_, err := s.docker.ContainerStart(ctx, s.container.GetContainerID(), client.ContainerStartOptions{})
		if err != nil {
			return err
		}
		s.killed = false
		return s.waitReady(ctx)
	})
}

// fault does one change of the server's state at a time.
func (s *Server) fault(name string, do func() error) error {
	if !s.CanFault() {
		return ErrNotOurs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := do(); err != nil {
		return fmt.Errorf("containers: %s %s: %w", name, s.Addr(), err)
	}
	return nil
}

// recover undoes the faults that a test has left, so that the next one finds a server that works.
func (s *Server) recover(ctx context.Context) error {
	if !s.CanFault() {
		return nil
	}
	if err := s.Resume(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	killed := s.killed
	s.mu.Unlock()
	if killed {
		return s.Restart(ctx)
	}
	var errs []error
	for _, node := range s.Nodes {
		errs = append(errs, node.recover(ctx))
	}
	return errors.Join(errs...)
}
