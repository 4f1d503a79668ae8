// fileio with C++'s ownership: a context that closes itself, and reads whose buffers live as long as the kernel holds them.
// Reads every file of the command line in one batch.
//
//     c++ -std=c++17 files.cpp $(pkg-config --cflags --libs treadle-fileio)
#include <fcntl.h>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <treadle/fileio.h>
#include <treadle/status.h>

class Read
{
  public:
    Read(std::string path, std::size_t limit) : path_(std::move(path)), bytes_(limit)
    {
        tdl_fop_read_file(&op_, AT_FDCWD, path_.c_str(), bytes_.data(), bytes_.size());
        op_.user = this;
    }
    Read(const Read &) = delete; // the kernel knows its address
    Read &operator=(const Read &) = delete;

    tdl_fop *operation()
    {
        return &op_;
    }
    const std::string &path() const
    {
        return path_;
    }
    std::string text() const
    {
        if (op_.result < 0) {
            throw std::runtime_error(path_ + ": " + tdl_status_text(static_cast<int>(op_.result)));
        }
        return std::string(bytes_.data(), static_cast<std::size_t>(op_.result));
    }

  private:
    std::string path_;
    std::vector<char> bytes_;
    tdl_fop op_{};
};

class Context
{
  public:
    Context()
    {
        check(tdl_fio_open(fio_.get(), nullptr));
    }
    ~Context()
    {
        tdl_fio_close(fio_.get(), nullptr);
    } // waits until no buffer is the kernel's any more
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;

    // Takes the reads for as long as they are under way, and gives them back as they finish.
    std::vector<std::unique_ptr<Read>> run(std::vector<std::unique_ptr<Read>> reads)
    {
        std::vector<std::unique_ptr<Read>> finished;
        finished.reserve(reads.size());
        tdl_queue queue;
        tdl_queue_init(&queue);
        int refused = 0;
        tdl_fio_hold(fio_.get(), true);
        for (auto &read : reads) {
            refused = tdl_fio_stage(fio_.get(), read->operation());
            if (refused < 0) {
                break;
            }
            read.release(); // the context's until the queue returns it
        }
        tdl_fio_hold(fio_.get(), false);
        int drained = tdl_fio_drain(fio_.get(), &queue);
        while (!tdl_queue_is_empty(&queue)) {
            finished.emplace_back(static_cast<Read *>(tdl_fop_of(tdl_queue_pop(&queue))->user));
        }
        check(refused);
        check(drained);
        return finished;
    }

  private:
    static void check(int status)
    {
        if (status < 0) {
            throw std::runtime_error(tdl_status_text(status));
        }
    }
    std::unique_ptr<tdl_fio> fio_ = std::make_unique<tdl_fio>();
};

int main(int argc, char **argv)
{
    Context files;
    std::vector<std::unique_ptr<Read>> reads;
    for (int i = 1; i < argc; i++) {
        reads.push_back(std::make_unique<Read>(argv[i], 65536));
    }
    int failed = 0;
    for (auto &read : files.run(std::move(reads))) {
        try {
            std::cout << read->path() << ": " << read->text().size() << " bytes\n";
        } catch (const std::runtime_error &error) {
            std::cout << error.what() << "\n";
            failed = 1;
        }
    }
    return failed;
}
