# A book-details service on WEBrick, after the details service of Istio's Bookinfo sample: small JSON over
# HTTP/1.1 with keep-alive. The sample ran without TCP_NODELAY for years; --nodelay sets it.
#
# usage: ruby details.rb --listen=ADDRESS:PORT [--nodelay]
require "json"
require "webrick"

listen, flag = ARGV
address, _, port = listen.to_s.delete_prefix("--listen=").rpartition(":")
known = listen.to_s.start_with?("--listen=") && !address.empty? && port.to_i.positive? && [nil, "--nodelay"].include?(flag)
abort "usage: ruby details.rb --listen=ADDRESS:PORT [--nodelay]" unless known && ARGV.size <= 2

options = {
  BindAddress: address,
  Port: port.to_i,
  Logger: WEBrick::Log.new($stderr, WEBrick::Log::WARN),
  AccessLog: [],
  # Kept-alive connections are served by a thread each; the default of 100 would queue the rest.
  MaxClients: 1000,
}
if flag == "--nodelay"
  options[:AcceptCallback] = ->(socket) { socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1) }
end

book = {
  id: 0, author: "William Shakespeare", year: 1595, type: "paperback", pages: 200,
  publisher: "PublisherA", language: "English", "ISBN-10": "1234567890", "ISBN-13": "123-1234567890",
}.to_json

server = WEBrick::HTTPServer.new(options)
server.mount_proc("/details") do |_request, response|
  response["Content-Type"] = "application/json"
  response.body = book
end
# Asked by probes, so that nobody but the generators asks what is measured.
server.mount_proc("/health") { |_request, response| response.body = "ok" }
%w[INT TERM].each { |signal| trap(signal) { server.shutdown } }
server.start
