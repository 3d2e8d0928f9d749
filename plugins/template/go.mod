// Change the module's path to your own: Go opens only one plugin of each package path.
module example.com/widget

go 1.26.0

require github.com/kubedevice/kubedevice/pkg/sdk v0.1.0

// Outside the KubeDevice repository, delete this line. The version above must be that of the hosts.
replace github.com/kubedevice/kubedevice/pkg/sdk => ../../pkg/sdk
