package serve

import (
	"time"

	"google.golang.org/grpc"
)

// StopGRPC lets calls in flight finish for Grace, then closes. Endless streams are cut.
func StopGRPC(server *grpc.Server) {
	cut := time.AfterFunc(Grace, server.Stop)
	defer cut.Stop()
	server.GracefulStop()
}
