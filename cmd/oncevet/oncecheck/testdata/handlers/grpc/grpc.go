// Package grpc has of google.golang.org/grpc what generated clients use. It takes the place of the real one in the tests.
package grpc

import "context"

type CallOption interface{ after() }

type ClientConnInterface interface {
	Invoke(ctx context.Context, method string, args, reply any, opts ...CallOption) error
}

type ClientConn struct{}

func (*ClientConn) Invoke(ctx context.Context, method string, args, reply any, opts ...CallOption) error {
	return nil
}

func (*ClientConn) Close() error { return nil }
