package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// opener opens a stream over a new connection. It returns a function that waits for the next event, whose text is
// valid until the next call, and the code of a successful answer. The end of ctx closes the stream.
type opener func(ctx context.Context, asked request) (next func() ([]byte, error), code string, err error)

func counted(sockets *atomic.Int64) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		sockets.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

func sseOpener(url string, header http.Header, sockets *atomic.Int64) opener {
	return func(ctx context.Context, asked request) (func() ([]byte, error), string, error) {
		client := http.Client{Transport: &http.Transport{
			DialContext: counted(sockets), DisableCompression: true,
		}}
		context.AfterFunc(ctx, client.CloseIdleConnections)
		question, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"?"+asked.query(), nil)
		if err != nil {
			return nil, "", err
		}
		question.Header = header.Clone()
		question.Header.Set("Accept", "text/event-stream")
		answer, err := client.Do(question)
		if err != nil {
			return nil, "", err
		}
		context.AfterFunc(ctx, func() { answer.Body.Close() })
		if answer.StatusCode != http.StatusOK {
			return nil, "", errors.New(strconv.Itoa(answer.StatusCode))
		}
		reader := bufio.NewReaderSize(answer.Body, 4096+asked.size)
		return func() ([]byte, error) { return nextData(reader) }, strconv.Itoa(answer.StatusCode), nil
	}
}

// nextData returns the data of the next server-sent event, of which each has one line of data.
func nextData(reader *bufio.Reader) ([]byte, error) {
	for {
		line, err := reader.ReadSlice('\n')
		if err == io.EOF {
			err = fmt.Errorf("the stream ended early: %w", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return nil, err
		}
		if data, found := bytes.CutPrefix(line, []byte("data: ")); found {
			return bytes.TrimSuffix(data, []byte{'\n'}), nil
		}
	}
}

func grpcOpener(address string, header http.Header, sockets *atomic.Int64) opener {
	dial := counted(sockets)
	return func(ctx context.Context, asked request) (func() ([]byte, error), string, error) {
		connection, err := grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithNoProxy(),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(4096+mostSize)),
			grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) { return dial(ctx, "tcp", at) }))
		if err != nil {
			return nil, "", err
		}
		context.AfterFunc(ctx, func() { connection.Close() })
		pairs := []string{}
		for key, values := range header {
			for _, value := range values {
				pairs = append(pairs, key, value)
			}
		}
		ctx = metadata.AppendToOutgoingContext(ctx, pairs...)
		stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
		if err != nil {
			return nil, "", err
		}
		if err := stream.SendMsg(wrapperspb.String(asked.query())); err != nil {
			return nil, "", err
		}
		if err := stream.CloseSend(); err != nil {
			return nil, "", err
		}
		var event wrapperspb.BytesValue
		return func() ([]byte, error) {
			err := stream.RecvMsg(&event)
			if err == io.EOF {
				err = fmt.Errorf("the stream ended early: %w", io.ErrUnexpectedEOF)
			}
			return event.GetValue(), err
		}, "OK", nil
	}
}
