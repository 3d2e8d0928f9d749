// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

func (m *measures) observeCall(call criproxy.Call) {
	method := call.Method
	if !m.methods[method] {
		method = other
	}
	code := call.Code.String()
	if call.Code > codes.Unauthenticated {
		code = other
	}
	m.calls.WithLabelValues(method, code).Inc()
	m.callTime.WithLabelValues(method).Observe(call.Took.Seconds())
	m.addedTime.WithLabelValues(method).Observe((call.Took - call.Waited).Seconds())
}

// other is the label of all methods and codes that this release does not know, so that nobody can make metrics without end.
const other = "other"

// criMethods returns the full names of the CRI's methods.
func criMethods() map[string]bool {
	methods := map[string]bool{}
	for _, service := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, method := range service.Methods {
			methods["/"+service.ServiceName+"/"+method.MethodName] = true
		}
		for _, stream := range service.Streams {
			methods["/"+service.ServiceName+"/"+stream.StreamName] = true
		}
	}
	return methods
}
