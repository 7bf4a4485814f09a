package containers

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// ask sends one command to a server that speaks the Redis protocol, on a connection of its own, and returns the reply's
// values in order, nested ones flattened. It is enough to wait for readiness and to set up a cluster, and keeps the
// driver out of this package.
func ask(ctx context.Context, addr string, command ...string) ([]string, error) {
	return askTLS(ctx, addr, nil, command)
}

// askTLS sends several commands on one connection and returns the reply to the last; an error reply to any is an error.
func askTLS(ctx context.Context, addr string, config *tls.Config, commands ...[]string) ([]string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	if config != nil {
		conn = tls.Client(conn, config)
	}

	reader := bufio.NewReader(conn)
	var reply []string
	for _, command := range commands {
		if _, err := conn.Write(encode(command)); err != nil {
			return nil, err
		}
		if reply, err = readReply(reader); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

func encode(command []string) []byte {
	request := fmt.Appendf(nil, "*%d\r\n", len(command))
	for _, arg := range command {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return request
}

// replyError is an error that the server sent.
type replyError string

func (e replyError) Error() string { return string(e) }

func readReply(reader *bufio.Reader) ([]string, error) {
	line, err := reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSpace(line)
	if line == "" {
		return nil, io.ErrUnexpectedEOF
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return []string{rest}, nil
	case '-':
		return nil, replyError(rest)
	}

	size, err := strconv.Atoi(rest)
	if err != nil {
		return nil, fmt.Errorf("containers: reply %q: %w", line, err)
	}
	if size < 0 {
		return nil, nil
	}
	if kind == '$' {
		data := make([]byte, size+len("\r\n"))
		_, err := io.ReadFull(reader, data)
		return []string{string(data[:size])}, err
	}
	var values []string
	for range size {
		part, err := readReply(reader)
		if err != nil {
			return nil, err
		}
		values = append(values, part...)
	}
	return values, nil
}
