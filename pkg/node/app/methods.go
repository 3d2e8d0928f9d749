// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unaryMethods are the unary methods of the CRI, by full name, as far as this release knows them.
func unaryMethods() map[string]bool {
	methods := map[string]bool{}
	for _, service := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, method := range service.Methods {
			methods["/"+service.ServiceName+"/"+method.MethodName] = true
		}
	}
	return methods
}
