module github.com/kubedevice/kubedevice/pkg/sdk

go 1.26.0
