// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criMethods returns the methods of the CRI that this release knows, by full name, and whether each
// is unary.
func criMethods() map[string]bool {
	unary := map[string]bool{}
	for _, service := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc,
		runtimeapi.ImageService_ServiceDesc} {
		for _, method := range service.Methods {
			unary["/"+service.ServiceName+"/"+method.MethodName] = true
		}
		for _, stream := range service.Streams {
			unary["/"+service.ServiceName+"/"+stream.StreamName] = false
		}
	}
	return unary
}
